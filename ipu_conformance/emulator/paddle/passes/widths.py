"""Casts in the executed Program after those ops whose kernels on the host write 64-bit numbers whatever is declared."""

from __future__ import annotations

from typing import Any, Mapping

from paddle.base import core, framework

from ipu_conformance.emulator.paddle.ir_rules import decide
from ipu_conformance.emulator.paddle.passes.compilation import INDEX, ROLE, STAGE
from ipu_conformance.emulator.paddle.passes.shapes import NARROWER

WIDE: Mapping[str, str] = {
    "top_k": "Indices",
    "top_k_v2": "Indices",
    "argsort": "Indices",
    "assign_value": "Out",
}
"""The output of every such op."""

SUFFIX = "@WIDE"


def narrowed(program: Any) -> Any:
    """The Program with a cast after every op that writes 64 bits where 32 are declared."""
    block = program.desc.block(0)
    for index in reversed(range(block.op_size())):
        op = block.op(index)
        if decide("cast wide results", op.type() in WIDE and bool(op.output(WIDE[op.type()]))):
            _cast_after(block, index, op)
    return framework.Program._construct_from_desc(program.desc)


def _cast_after(block: Any, index: int, op: Any) -> None:
    slot = WIDE[op.type()]
    name = op.output(slot)[0]
    desc = block.find_var(name.encode())
    wide = next((each for each, narrow in NARROWER.items() if narrow == desc.dtype()), None)
    if wide is None or (op.type() == "assign_value" and int(op.attr("dtype")) != int(wide)):
        return
    before = block.var((name + SUFFIX).encode())
    before.set_type(core.VarDesc.VarType.LOD_TENSOR)
    before.set_shape(list(desc.shape()))
    before.set_dtype(wide)
    before.set_stop_gradient(True)
    op.set_output(slot, [name + SUFFIX])
    cast = block._insert_op(index + 1)
    cast.set_type("cast")
    cast.set_input("X", [name + SUFFIX])
    cast.set_output("Out", [name])
    cast._set_attr("in_dtype", int(wide))
    cast._set_attr("out_dtype", int(desc.dtype()))
    for attribute in (ROLE, INDEX, STAGE):
        if op.has_attr(attribute):
            cast._set_attr(attribute, op.attr(attribute))
