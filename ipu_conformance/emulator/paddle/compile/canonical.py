"""A program in PopART's ops: which of Paddle's calls become which ops, and how those are written into a Program.

The translation itself is the table of ``ipu_conformance.ir``; here are the names that an IPU build gives to the ops in
its own IR, custom ops, and the way back into the description of a Program.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from paddle.base import core

from ipu_conformance.emulator.paddle import refusals
from ipu_conformance.emulator.paddle.compile import untaken
from ipu_conformance.emulator.paddle.compile.compilation import (
    CAST,
    FORWARD,
    OPTIMIZER,
    ROLE,
    SCHEDULE,
    place,
    role_of,
)
from ipu_conformance.emulator.paddle.compile.handlers import handlers
from ipu_conformance.emulator.paddle.errors import Unimplemented
from ipu_conformance.ir.graph import Op
from ipu_conformance.ir.readers.paddle import program as paddle_program
from ipu_conformance.ir.readers.paddle.messages import Variable, parse_block
from ipu_conformance.ir.readers.paddle.ops import DTYPES, ROWS, Call, Writer, translate
from ipu_conformance.ir.tensor import IRError, Literal, Tensor

PREFIX = "popart_"
INPUTS, OUTPUTS = "__inputs__", "__outputs__"
CUSTOM = "custom_op"
"""The attribute that names the custom op which a call stands for."""

SPECIAL: Mapping[str, str] = {
    "Nll": "popart_nllloss_v2",
    "GroupNormalization": "popart_groupnormalization_v2",
    "Gelu": "popart_gelu_v2",
    "Detach": "popart_detach_v2",
    "Ctc": "popart_ctcloss_v2",
    "Print": "popart_printtensor_v2",
    "CheckpointOutput": "popart_checkpointoutput",
    "IdentityLoss": "popart_identity_loss",
}
"""Ops of PopART's own that are not called as their types are; all others are the type in small letters."""

_NUMBERS = {name: number for number, name in DTYPES.items()}


@dataclass(frozen=True)
class Written:
    """The ops that a program becomes, with every tensor that they use."""

    ops: Tuple[Op, ...]
    tensors: Mapping[str, Tensor]
    customs: Mapping[str, Call]
    """The call of every custom op, by its first output."""


def name_of(type: str) -> str:
    """The name of an op type in the IR of an IPU build."""
    return SPECIAL.get(type, PREFIX + type.lower())


def read(program: Any) -> Tuple[List[Variable], List[Call]]:
    """The variables and the calls of a Program's global block; ops of control flow have no handler anyway."""
    return parse_block(program.desc.block(0).serialize_to_string())


def translated(program: Any, custom_ops: Sequence[Any]) -> Written:
    """The ops that a forward Program becomes; ``custom_ops`` are the strategy's rows of mapped ops."""
    variables, calls = read(program)
    rows = {row.paddle_op: row for row in custom_ops}
    wanted = [call for call in calls if _is_translated(call.type, call.get(ROLE, FORWARD))]
    names = {_custom_name(call): call.type for call in wanted}
    refusals.OP_HANDLER(unknown=[name for name, type in names.items() if name not in rows and type not in ROWS])
    writer = Writer({variable.name: paddle_program.tensor_of(variable) for variable in variables})
    customs: Dict[str, Call] = {}
    makers: Dict[str, Call] = {}
    for call in wanted:
        call = _beside_its_input(call, makers)
        makers.update((name, call) for names in call.outputs.values() for name in names)
        row = rows.get(_custom_name(call))
        if row is not None:
            _pass_through(call, row, writer)
            customs[writer.ops[-1].outputs[0]] = call
        elif call.type in ROWS:
            _translate(call, writer)
    return Written(tuple(writer.ops), writer.tensors, customs)


def _beside_its_input(call: Call, makers: Mapping[str, Call]) -> Call:
    """A cast that names no IPU or no stage, as those of mixed precision, has that of the op that makes its input."""
    maker = makers.get(call.read("X")) if call.type == CAST else None
    if maker is None:
        return call
    return replace(
        call,
        ipu=maker.ipu if call.ipu is None else call.ipu,
        stage=maker.stage if call.stage is None else call.stage,
    )


def _pass_through(call: Call, row: Any, writer: Writer) -> None:
    writer.begin(call)
    inputs = [name for slot in call.inputs.values() for name in slot]
    outputs = [name for slot in call.outputs.values() for name in slot]
    writer.add(f"{row.domain}::{row.popart_op}", inputs, outputs, {"version": int(row.version)})


def _translate(call: Call, writer: Writer) -> None:
    try:
        refusals.DIMENSIONS(type=call.type, shape=_written_out(call, writer))
        untaken.check(call, writer)
        translate(call, writer)
    except IRError as error:
        if call.type in handlers():
            raise Unimplemented(f"{error}; the handler of that op does not take it") from None
        raise Unimplemented(f"{error}; an IPU build has no handler for it") from None


def _written_out(call: Call, writer: Writer) -> Tuple[int, ...]:
    """The shape of a constant that the handler of an op writes out, as far as it is known; empty for other ops."""
    if call.type == "fill_constant" and not call.inputs.get("ShapeTensor"):
        return call.ints("shape")
    lengths = writer.shape(call.read("X")) if call.type == "fill_any_like" else ()
    return tuple(length for length in lengths if length is not None)


def _is_translated(type: str, role: int) -> bool:
    """The folded optimizer stays, and so does what computes the learning rate on the host."""
    return type != OPTIMIZER and role != SCHEDULE


def _custom_name(call: Call) -> str:
    return str(call.get(CUSTOM)) if call.type == "py_func" and call.get(CUSTOM) else call.type


def write(program: Any, written: Written) -> None:
    """Replace the ops of a Program that were translated by what they became."""
    block = program.global_block()
    schedule: List[Any] = []
    optimizer: List[Any] = []
    for op in block.ops:
        if not _is_translated(op.type, role_of(op)):
            copy = core.OpDesc()
            copy.copy_from(op.desc)
            copy.set_type(op.type)
            (optimizer if op.type == OPTIMIZER else schedule).append(copy)
    for index in reversed(range(len(block.ops))):
        block._remove_op(index, sync=False)
    for copy in schedule:
        block.desc.append_op().copy_from(copy)
    for tensor in written.tensors.values():
        _declare(block.desc, tensor)
    for op in written.ops:
        _append(block.desc, op, written.customs)
    for copy in optimizer:
        block.desc.append_op().copy_from(copy)
    program._sync_with_cpp()


def _declare(block: Any, tensor: Tensor) -> None:
    name = tensor.name.encode()
    if block.has_var(name) or tensor.shape is None:
        return
    desc = block.var(name)
    desc.set_type(core.VarDesc.VarType.LOD_TENSOR)
    desc.set_shape([-1 if length is None else length for length in tensor.shape])
    if tensor.dtype in _NUMBERS:
        desc.set_dtype(core.VarDesc.VarType(_NUMBERS[tensor.dtype]))


def _append(block: Any, op: Op, customs: Mapping[str, Call]) -> None:
    desc = block.append_op()
    call = customs.get(op.outputs[0])
    if call is not None:
        desc.set_type(_custom_name(call))
    else:
        desc.set_type(name_of(op.type))
    desc.set_input(INPUTS, [name or core.empty_var_name() for name in op.inputs])
    desc.set_output(OUTPUTS, list(op.outputs))
    desc._set_attr(ROLE, FORWARD)
    place(desc, op.ipu, op.stage)
    for name, value in op.attributes.items():
        _attribute(desc, name, value)


def _attribute(desc: Any, name: str, value: Any) -> None:
    if isinstance(value, Literal):
        desc._set_attr("dims", list(value.shape))
        desc._set_attr("dtype", _NUMBERS[value.dtype])
        desc._set_attr(name, value.data.hex())
    else:
        desc._set_attr(name, list(value) if isinstance(value, tuple) else value)
