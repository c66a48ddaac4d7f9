"""Fixing the batch and the types of a program, and inferring every shape again."""

from __future__ import annotations

from typing import Any, Mapping

from paddle.base import core

from ipu_conformance.emulator.paddle import refusals
from ipu_conformance.emulator.paddle.compile import subprograms
from ipu_conformance.emulator.paddle.compile.compilation import OPTIMIZER, Compilation, name_of
from ipu_conformance.emulator.paddle.compile.passes.tensor_attributes import WrittenAttributes

_TYPES = core.VarDesc.VarType
NARROWER = {_TYPES.INT64: _TYPES.INT32, _TYPES.FP64: _TYPES.FP32}
"""The type that a value has on the device, which has no 64-bit numbers."""

TYPE_ATTRIBUTES = ("dtype", "in_dtype", "out_dtype")
"""The attributes of ops that name the type of what they write or read."""

BLOCK = "sub_block"
"""The attribute of ops that hold a block of their own."""

_BY_NUMBER = {int(wide): int(narrow) for wide, narrow in NARROWER.items()}
_STILL_WIDE = ("assign_value",)
"""Ops whose attributes hold values of the type that they name."""


def infer(record: Compilation, values: Mapping[str, Any]) -> None:
    """Give feeds the micro-batch for a leading -1, narrow all types, and infer the shapes of all outputs."""
    record.feeds = tuple(name_of(feed) for feed in values.get("feed_list", record.feeds))
    block = record.program.global_block()
    size = int(record.strategy.value("micro_batch_size"))
    for name in record.feeds:
        desc = block.var(name).desc
        _fix_batch(desc, size)
        refusals.OPEN_DIMENSION(name=name, shape=tuple(desc.shape()))
        _narrow(block, name)
    declared = {row.paddle_op for row in record.strategy.custom_ops}
    written = WrittenAttributes()
    for op in block.ops:
        if op.type == OPTIMIZER or op.has_attr(BLOCK):
            continue  # canonicalization refuses control flow by its name
        written.note(op)
        written.fold(block, op)
        _narrow_attributes(op)
        _drop_kept_dimension(op)
        _infer_outputs(block, op, size, declared=op.type == subprograms.CALL or op.type in declared)
        # Inference may declare 64 bits again, so that outputs are narrowed after it and before their readers' turn.
        for name in op.output_arg_names:
            _narrow(block, name)
    if record.loss is not None:
        refusals.LOSS_SHAPE(name=record.loss, shape=tuple(block.var(record.loss).desc.shape()))


def _infer_outputs(block: Any, op: Any, size: int, *, declared: bool) -> None:
    """Infer the shapes of what an op writes; those that a call of Python declares stay, but for the micro-batch."""
    if declared:
        for name in op.output_arg_names:
            _fix_batch(block.var(name).desc, size)
    else:
        op.desc.infer_shape(block.desc)


def _narrow_attributes(op: Any) -> None:
    for name in TYPE_ATTRIBUTES:
        if op.type not in _STILL_WIDE and op.has_attr(name) and isinstance(op.attr(name), int):
            op.desc._set_attr(name, _BY_NUMBER.get(int(op.attr(name)), int(op.attr(name))))


def _drop_kept_dimension(op: Any) -> None:
    """The handlers of argmax and argmin do not read whether a dimension is kept: none is."""
    if op.type in ("arg_max", "arg_min"):
        op.desc._set_attr("keepdims", False)


def _narrow(block: Any, name: str) -> None:
    """Give 32 bits to what is fed or computed; what persists on the host keeps its type."""
    desc = block.desc.find_var(name.encode())
    if desc is not None and desc.type() == _TYPES.LOD_TENSOR and not desc.persistable():
        desc.set_dtype(NARROWER.get(desc.dtype(), desc.dtype()))


def _fix_batch(desc: Any, size: int) -> None:
    shape = list(desc.shape())
    if shape and shape[0] < 0:
        desc.set_shape([size, *shape[1:]])
