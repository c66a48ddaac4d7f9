"""Casts in the executed Program around those ops whose kernels on the host know 64-bit numbers only."""

from __future__ import annotations

from typing import Any, Mapping, Tuple

from paddle.base import core, framework

from ipu_conformance.emulator.faults.decisions import paddle_ir as decide
from ipu_conformance.emulator.paddle.compile.compilation import INDEX, ROLE, STAGE
from ipu_conformance.emulator.paddle.compile.passes.shapes import NARROWER

WIDE: Mapping[str, str] = {
    "top_k": "Indices",
    "top_k_v2": "Indices",
    "argsort": "Indices",
    "assign_value": "Out",
    "size": "Out",
}
"""The output of every op that writes 64 bits whatever is declared."""

READS_WIDE: Mapping[str, Tuple[str, ...]] = {
    "nll_loss": ("Label",),
    "cross_entropy2": ("Label",),
    "lookup_table": ("Ids",),
    "accuracy": ("Indices", "Label"),
}
"""The inputs of every op that reads 64 bits only."""

SUFFIX = "@WIDE"


def narrowed(program: Any) -> Any:
    """The Program with a cast after every op that writes 64 bits where 32 are declared, and before all that read 64."""
    block = program.desc.block(0)
    for index in reversed(range(block.op_size())):
        op = block.op(index)
        if decide("cast wide results", op.type() in WIDE and bool(op.output(WIDE[op.type()]))):
            _cast_after(block, index, op)
        elif op.type() in READS_WIDE:
            for slot in READS_WIDE[op.type()]:
                index += _cast_before(block, index, op, slot)
    return framework.Program._construct_from_desc(program.desc)


def _cast_after(block: Any, index: int, op: Any) -> None:
    slot = WIDE[op.type()]
    name = op.output(slot)[0]
    desc = block.find_var(name.encode())
    wide = next((each for each, narrow in NARROWER.items() if narrow == desc.dtype()), None)
    if wide is None or (op.type() == "assign_value" and int(op.attr("dtype")) != int(wide)):
        return
    op.set_output(slot, [_declare(block, desc, wide)])
    _cast(block, index + 1, op, (name + SUFFIX, wide), (name, desc.dtype()))


def _cast_before(block: Any, index: int, op: Any, slot: str) -> int:
    """Make an op read one of its inputs in 64 bits; returns how many casts were put before it."""
    name = op.input(slot)[0]
    desc = block.find_var(name.encode())
    wide = next((each for each, narrow in NARROWER.items() if narrow == desc.dtype()), None)
    if wide is None:
        return 0
    op.set_input(slot, [_declare(block, desc, wide)])
    _cast(block, index, op, (name, desc.dtype()), (name + SUFFIX, wide))
    return 1


def _declare(block: Any, like: Any, wide: Any) -> str:
    """The name of a variable in 64 bits that is otherwise like another one."""
    name = str(like.name()) + SUFFIX
    var = block.var(name.encode())
    var.set_type(core.VarDesc.VarType.LOD_TENSOR)
    var.set_shape(list(like.shape()))
    var.set_dtype(wide)
    var.set_stop_gradient(True)
    return name


def _cast(block: Any, index: int, op: Any, source: Tuple[str, Any], target: Tuple[str, Any]) -> None:
    """Insert a cast that has the role and the place of the op that it belongs to."""
    cast = block._insert_op(index)
    cast.set_type("cast")
    cast.set_input("X", [source[0]])
    cast.set_output("Out", [target[0]])
    cast._set_attr("in_dtype", int(source[1]))
    cast._set_attr("out_dtype", int(target[1]))
    for attribute in (ROLE, INDEX, STAGE):
        if op.has_attr(attribute):
            cast._set_attr(attribute, op.attr(attribute))
