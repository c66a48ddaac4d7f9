"""Reading Paddle's Programs: a Program in memory, or the bytes of a saved one (``.pdmodel``, ``__model__``).

Paddle itself is not needed for saved programs. The ops are translated to those of ONNX and PopART; one without a
translation becomes an op of the domain "paddle" under its own name. Only the forward pass is read: gradients and the
optimizer's ops are left out. A program with control flow, which has several blocks, is refused.
"""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Set, Tuple

from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.ir.readers.paddle import (
    constants,
    elementwise,
    indexing,
    layers,
    losses,
    matrices,
    recurrent,
    shaping,
    vision,
)
from ipu_conformance.ir.readers.paddle.messages import Variable, parse
from ipu_conformance.ir.readers.paddle.ops import DTYPES, ROWS, Call, Writer, renamed, translate
from ipu_conformance.ir.tensor import UNDEFINED, IRError, Tensor

TABLES = (constants, elementwise, indexing, layers, losses, matrices, recurrent, shaping, vision)
"""The modules whose rows are known once they are imported."""

DOMAIN = "paddle"
ROLE, INDEX, STAGE = "op_role", "ipu_index", "ipu_stage"
_FORWARD_ROLES = (0, 256)
_PLUMBING = ("feed", "fetch")


def load(data: bytes) -> Graph:
    """The graph of a saved program."""
    return graph_of(*parse(data))


def read_program(program: Any, fetches: Sequence[str] = (), name: str = "program") -> Graph:
    """The graph of a ``paddle.static.Program``; without fetches, its outputs are what nobody reads."""
    return graph_of(*parse(program.desc.serialize_to_string()), fetches=fetches, name=name)


def graph_of(
    variables: Sequence[Variable], calls: Sequence[Call], *, fetches: Sequence[str] = (), name: str = "program"
) -> Graph:
    """The graph of a program's variables and ops, and of what is fetched beside what its own ops fetch."""
    forward = [call for call in calls if _role(call) in _FORWARD_ROLES]
    fed = [names[0] for call in forward if call.type == "feed" for names in call.outputs.values() if names]
    fetched = [names[0] for call in forward if call.type == "fetch" for names in call.inputs.values() if names]
    fetched += [fetch for fetch in fetches if fetch not in fetched]
    inner = [call for call in forward if call.type not in _PLUMBING]
    writer = Writer({variable.name: tensor_of(variable) for variable in variables})
    for call in inner:
        if call.type in ROWS:
            translate(call, writer)
        else:
            _keep(call, writer)
    return finished(name, writer, variables, fed, fetched)


def finished(
    name: str, writer: Writer, variables: Sequence[Variable], fed: Sequence[str], fetched: Sequence[str]
) -> Graph:
    """The graph of what was written: what nobody makes is an input, or a weight where it persists."""
    persistent = {variable.name for variable in variables if variable.persistable}
    written = {output for op in writer.ops for output in op.outputs if output}
    first_read = _read_before_made(writer.ops)
    weights = [name for name in first_read if name in persistent]
    inputs = list(dict.fromkeys([*fed, *(name for name in first_read if name not in persistent)]))
    ops, tensors, latest = renamed(writer.ops, [*weights, *inputs], writer.tensors)
    outputs = [latest.get(output, output) for output in fetched] or _ends(ops, written)
    for output in outputs:
        if output not in tensors:
            raise IRError(f"the program fetches {output!r}, which it does not declare")
    used = {*weights, *inputs, *(output for op in ops for output in op.outputs if output)}
    missing = [output for output in outputs if output not in used]
    inputs += missing
    used.update(missing)
    return Graph(
        name=name,
        ops=ops,
        inputs=inputs,
        outputs=tuple(dict.fromkeys(outputs)),
        tensors=[tensors.get(each, Tensor(each)) for each in dict.fromkeys([*inputs, *weights, *sorted(used)])],
        initializers=dict.fromkeys(weights),
    )


def tensor_of(variable: Variable) -> Tensor:
    """A variable as a tensor: a negative length is unknown."""
    shape = None if variable.shape is None else tuple(None if size < 0 else size for size in variable.shape)
    return Tensor(variable.name, DTYPES.get(variable.dtype, UNDEFINED), shape)


def _role(call: Call) -> int:
    role = call.get(ROLE, 0)
    return role if isinstance(role, int) else 0


def _keep(call: Call, writer: Writer) -> None:
    """An op without a translation, with what of its attributes a graph can hold."""
    writer.begin(call)
    inputs = [name for slot in sorted(call.inputs) for name in call.inputs[slot]]
    outputs = [name for slot in sorted(call.outputs) for name in call.outputs[slot]]
    attributes = {key: value for key, value in call.attributes.items() if key and _plain(value)}
    for name in (*inputs, *outputs):
        writer.tensors.setdefault(name, Tensor(name))
    if outputs:
        writer.add(f"{DOMAIN}::{call.type or 'unnamed'}", inputs, outputs, attributes)


def _plain(value: Any) -> bool:
    items: Tuple[Any, ...] = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    return len({type(item) for item in items}) == 1 and all(
        isinstance(item, (int, str)) or (isinstance(item, float) and item == item) for item in items
    )


def _read_before_made(ops: Sequence[Op]) -> List[str]:
    written: Set[str] = set()
    first_read: Dict[str, None] = {}
    for op in ops:
        first_read.update(dict.fromkeys(name for name in op.inputs if name and name not in written))
        written.update(op.outputs)
    return list(first_read)


def _ends(ops: Sequence[Op], made: Set[str]) -> List[str]:
    """What is made and never read: the outputs of a program that fetches nothing."""
    read = {name for op in ops for name in op.inputs}
    return [op.outputs[0] for op in ops if op.outputs and not any(name in read for name in op.outputs if name)]
