"""Casts in the executed Program around those ops whose kernels on the host know 64-bit numbers only."""

from __future__ import annotations

from typing import Any, Mapping, Tuple

from ipu_conformance.emulator.paddle.compile.compilation import insert_cast
from ipu_conformance.emulator.paddle.compile.passes.shapes import NARROWER
from ipu_conformance.emulator.paddle.compile.subprograms import new_variable

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
    "warpctc": ("LogitsLength", "LabelLength"),
}
"""The inputs of every op that reads 64 bits only."""

SUFFIX = "@WIDE"
_WIDER = {narrow: wide for wide, narrow in NARROWER.items()}


def narrowed(program: Any) -> Any:
    """The Program with a cast after every op that writes 64 bits where 32 are declared, and before all that read 64."""
    block = program.desc.block(0)
    for index in reversed(range(block.op_size())):
        op = block.op(index)
        if op.type() in WIDE and op.output(WIDE[op.type()]):
            _cast_after(block, index, op)
        elif op.type() in READS_WIDE:
            for slot in READS_WIDE[op.type()]:
                index += _cast_before(block, index, op, slot)
    return program


def _cast_after(block: Any, index: int, op: Any) -> None:
    slot = WIDE[op.type()]
    desc = block.find_var(op.output(slot)[0].encode())
    wide = _WIDER.get(desc.dtype())
    if wide is None or (op.type() == "assign_value" and int(op.attr("dtype")) != int(wide)):
        return
    op.set_output(slot, [_declare(block, desc, wide)])
    insert_cast(block, index + 1, op, (desc.name() + SUFFIX, wide), (desc.name(), desc.dtype()))


def _cast_before(block: Any, index: int, op: Any, slot: str) -> int:
    """Make an op read one of its inputs in 64 bits; returns how many casts were put before it."""
    desc = block.find_var(op.input(slot)[0].encode())
    wide = _WIDER.get(desc.dtype())
    if wide is None:
        return 0
    op.set_input(slot, [_declare(block, desc, wide)])
    insert_cast(block, index, op, (desc.name(), desc.dtype()), (desc.name() + SUFFIX, wide))
    return 1


def _declare(block: Any, like: Any, wide: Any) -> str:
    """The name of a variable in 64 bits that is otherwise like another one."""
    name = str(like.name()) + SUFFIX
    new_variable(block, name, wide, like.shape()).set_stop_gradient(True)
    return name
