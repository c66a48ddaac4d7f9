"""Convolutions of a MultiConv as one op, as PopART has them: data and weights in pairs, an output for each."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ipu_conformance.ir.graph import Op

TYPE = "MultiConv"


def join(ops: Sequence[Op], outputs: Sequence[str], settings: Mapping[str, Any]) -> List[Op]:
    """The ops with one in the place of those that make ``outputs``; unchanged if one of them reads another's result."""
    members = [op for op in ops if op.outputs[0] in outputs]
    first, last = ops.index(members[0]), ops.index(members[-1])
    before: List[Op] = []
    after: List[Op] = []
    made = set(outputs)
    for op in ops[first : last + 1]:
        if op in members:
            if any(member.outputs[0] in made and member.outputs[0] in op.inputs for member in members):
                return list(ops)
            if _reads(op, after):
                return list(ops)
        elif made.intersection(op.inputs) or _reads(op, after):
            after.append(op)
        else:
            before.append(op)
    return [*ops[:first], *before, _joined(members, settings), *after, *ops[last + 1 :]]


def _reads(op: Op, others: Sequence[Op]) -> bool:
    return any(set(op.inputs).intersection(other.outputs) for other in others)


def _joined(members: Sequence[Op], settings: Mapping[str, Any]) -> Op:
    scopes = [op.name.split("/")[:-1] for op in members]
    attributes: Dict[str, Any] = {}
    for name in dict.fromkeys(name for op in members for name in op.attributes):
        values = [op.attributes[name] for op in members if name in op.attributes]
        attributes[name] = tuple(part for value in values for part in _listed(value))
    for name, value in settings.items():
        attributes[name] = _word(value)
    return Op(
        TYPE,
        "/".join([*_common(scopes), TYPE]),
        tuple(name for op in members for name in op.inputs),
        tuple(op.outputs[0] for op in members),
        attributes,
        ipu=members[0].ipu,
        stage=members[0].stage,
    )


def _common(scopes: Sequence[List[str]]) -> List[str]:
    return list(os.path.commonprefix(list(scopes)))


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _word(value: Any) -> Any:
    """A setting as an attribute: members of enumerations and types by their names."""
    if isinstance(value, tuple):
        return tuple(_word(each) for each in value)
    name: Optional[str] = getattr(value, "name", None)
    if name is not None:
        return name.lower()
    return value if isinstance(value, (bool, int, float, str)) else str(value).rpartition(".")[2]
