"""PopART JSON: the form of PopART's own IR dump, one object with the list ``maingraph``, in which scalars are strings.

What the format holds: ops with their types, names and order, the inputs and outputs by position, the placement, the
dtype and shape of every tensor that an op reads, and attributes as text. What it does not hold: the name and the opset
of the graph (read as "maingraph" and the default), which unmade tensors are weights (all are read as inputs, in order
of first use) and their values, tensors that no op reads or makes, dtype and shape of tensors that no op reads, graph
outputs (read as the tensors that no op reads), trailing omitted inputs and outputs, and the kind of an attribute: text
that looks like a number or a list of numbers is read as that, a list of strings as one string, a tensor as its type.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ipu_conformance.ir.formats import json_text
from ipu_conformance.ir.graph import IPU_ATTRIBUTE, STAGE_ATTRIBUTE, Graph, Op
from ipu_conformance.ir.tensor import (
    INT64_MAX,
    INT64_MIN,
    UNDEFINED,
    Attribute,
    IRError,
    Literal,
    Scalar,
    Shape,
    Tensor,
    merged,
)

MAINGRAPH = "maingraph"
MAX_OMITTED = 64
"""The most positions that an op's inputs, or its outputs, may leave out: they take memory but no text."""

_INTEGER = re.compile(r"(?:0|-?[1-9][0-9]{0,18})", re.ASCII)
_FLOAT = re.compile(r"-?(?:inf|[0-9]{1,400}(?:\.[0-9]{1,40}(?:[eE][+-]?[0-9]{1,4})?|[eE][+-]?[0-9]{1,4}))", re.ASCII)


def dump(graph: Graph) -> bytes:
    """The graph as PopART JSON, with PopART's compact separators."""
    ops = [_op_json(op, graph.tensors) for op in graph.ops]
    return json.dumps({MAINGRAPH: ops}, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def load(document: Any) -> Graph:
    """The graph that parsed PopART JSON holds."""
    top = json_text.require_object(document, "the document")
    others = sorted(set(top) - {MAINGRAPH})
    if others:
        raise IRError(f"the dump has the graph {others[0][:80]!r} beside {MAINGRAPH!r}; one graph alone is read")
    known: Dict[str, Tensor] = {}
    ops = []
    for index, fields in enumerate(json_text.require_list(top.get(MAINGRAPH), f"'{MAINGRAPH}'")):
        ops.append(_op(json_text.require_object(fields, f"op {index}"), f"op {index}", known))
    produced = {name for op in ops for name in op.outputs if name}
    read = dict.fromkeys(name for op in ops for name in op.inputs if name)
    return Graph(
        name=MAINGRAPH,
        ops=ops,
        inputs=[name for name in read if name not in produced],
        outputs=dict.fromkeys(name for op in ops for name in op.outputs if name and name not in read),
        tensors=known,
    )


def attribute_text(value: Attribute) -> str:
    """An attribute as PopART writes it: a number or a string as it is, a list as ``[1 1]``."""
    if isinstance(value, tuple):
        return f"[{' '.join(str(item) for item in value)}]"
    if isinstance(value, Literal):
        return f"{value.dtype} {shape_text(value.shape)}"
    return str(value)


def attribute_value(text: str) -> Attribute:
    """The number or list of numbers that an attribute's text looks like, else the text itself."""
    if text.startswith("[") and text.endswith("]"):
        numbers = [_number(item) for item in text[1:-1].split(" ")] if len(text) > 2 else []
        values = tuple(number for number in numbers if number is not None)
        return values if len(values) == len(numbers) else text
    number = _number(text)
    return text if number is None else number


def shape_text(shape: Shape) -> str:
    """A shape as PopART writes it, ``[5 40]``; an unknown dimension is a question mark."""
    return f"[{' '.join('?' if dimension is None else str(dimension) for dimension in shape)}]"


def _shape(text: str, what: str) -> Shape:
    if not (text.startswith("[") and text.endswith("]")):
        raise IRError(f"the shape of {what} is {text[:80]!r}; it should look like '[5 40]'")
    items = text[1:-1].split()
    for item in items:
        if item != "?" and not _INTEGER.fullmatch(item):
            raise IRError(f"the shape of {what} has the dimension {item[:80]!r}; it should be an integer of 64 bits")
    return tuple(None if item == "?" else int(item) for item in items)


def _number(text: str) -> Optional[Scalar]:
    if _INTEGER.fullmatch(text):
        number = int(text)
        return number if INT64_MIN <= number <= INT64_MAX else None
    return float(text) if _FLOAT.fullmatch(text) else None


def _op_json(op: Op, tensors: Mapping[str, Tensor]) -> Dict[str, Any]:
    attributes = {name: attribute_text(value) for name, value in op.attributes.items()}
    if op.ipu is not None:
        attributes[IPU_ATTRIBUTE] = str(op.ipu)
    if op.stage is not None:
        attributes[STAGE_ATTRIBUTE] = str(op.stage)
    for slots in (op.inputs, op.outputs):
        if len(slots) - sum(map(bool, slots)) > MAX_OMITTED:
            raise IRError(f"{op} omits more than {MAX_OMITTED} inputs or outputs; PopART JSON cannot hold it")
    return {
        "type": op.type,
        "name": op.name,
        "inputs": [_input_json(tensors[name], index) for index, name in enumerate(op.inputs) if name],
        "outputs": [{"name": name, "index": str(index)} for index, name in enumerate(op.outputs) if name],
        "attributes": dict(sorted(attributes.items())),
    }


def _input_json(tensor: Tensor, index: int) -> Dict[str, str]:
    fields = {"name": tensor.name}
    if tensor.shape is not None:
        fields["shape"] = shape_text(tensor.shape)
    if tensor.dtype != UNDEFINED:
        fields["type"] = tensor.dtype
    fields["index"] = str(index)
    return fields


def _op(fields: Dict[str, Any], what: str, known: Dict[str, Tensor]) -> Op:
    attributes = {
        name: json_text.require_string(text, f"attribute {name!r} of {what}")
        for name, text in json_text.require_object(fields.get("attributes", {}), f"'attributes' of {what}").items()
    }
    ipu = _placement(attributes.pop(IPU_ATTRIBUTE, None), f"{IPU_ATTRIBUTE} of {what}")
    stage = _placement(attributes.pop(STAGE_ATTRIBUTE, None), f"{STAGE_ATTRIBUTE} of {what}")
    return Op(
        type=json_text.require_string(fields.get("type"), f"'type' of {what}"),
        name=json_text.require_string(fields.get("name"), f"'name' of {what}"),
        inputs=_slots(fields.get("inputs"), f"'inputs' of {what}", known),
        outputs=_slots(fields.get("outputs"), f"'outputs' of {what}", known),
        attributes={name: attribute_value(text) for name, text in attributes.items()},
        ipu=ipu,
        stage=stage,
    )


def _placement(text: Optional[str], what: str) -> Optional[int]:
    if text is None:
        return None
    if not _INTEGER.fullmatch(text):
        raise IRError(f"{what} is {text[:80]!r}; it should be an integer")
    return int(text)


def _slots(entries: Any, what: str, known: Dict[str, Tensor]) -> Tuple[str, ...]:
    entries = json_text.require_list(entries, what)
    slots: List[Optional[str]] = [None] * (len(entries) + MAX_OMITTED)
    for entry in entries:
        entry = json_text.require_object(entry, f"an entry of {what}")
        tensor = _tensor(entry, what)
        index = json_text.require_string(entry.get("index"), f"'index' of tensor {tensor.name!r} in {what}")
        if not _INTEGER.fullmatch(index) or not 0 <= int(index) < len(slots) or slots[int(index)] is not None:
            raise IRError(f"'index' of tensor {tensor.name!r} in {what} is {index[:80]!r}; positions count up from 0")
        slots[int(index)] = tensor.name
        known[tensor.name] = merged(known.get(tensor.name), tensor)
    while slots and slots[-1] is None:
        slots.pop()
    return tuple(name or "" for name in slots)


def _tensor(entry: Dict[str, Any], what: str) -> Tensor:
    name = json_text.require_string(entry.get("name"), f"'name' of an entry of {what}")
    shape = entry.get("shape")
    return Tensor(
        name,
        json_text.require_string(entry.get("type", UNDEFINED), f"'type' of tensor {name!r}"),
        None if shape is None else _shape(json_text.require_string(shape, f"'shape' of {name!r}"), f"tensor {name!r}"),
    )
