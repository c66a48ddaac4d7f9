"""Fixing the batch and the types of feeds, and inferring every shape anew."""

from __future__ import annotations

from typing import Any, Mapping

from paddle.base import core

from ipu_conformance.emulator.paddle.passes.compilation import Compilation, name_of
from ipu_conformance.emulator.paddle.passes.optimizer import TYPE

_TYPES = core.VarDesc.VarType
NARROWER = {_TYPES.INT64: _TYPES.INT32, _TYPES.FP64: _TYPES.FP32}
"""The type that a feed has on the device, which has no 64-bit numbers."""


def infer(record: Compilation, values: Mapping[str, Any]) -> None:
    """Give feeds the micro-batch for a leading -1 and 32-bit types, then infer the shapes of all outputs."""
    feeds = tuple(name_of(feed) for feed in values.get("feed_list", record.feeds))
    record.feeds = feeds
    block = record.program.global_block()
    size = int(record.strategy.value("micro_batch_size"))
    for name in feeds:
        desc = block.var(name).desc
        shape = list(desc.shape())
        if shape and shape[0] < 0:
            desc.set_shape([size, *shape[1:]])
        desc.set_dtype(NARROWER.get(desc.dtype(), desc.dtype()))
    known = set(record.custom_ops)
    for op in block.ops:
        if op.type != TYPE and op.type not in known:
            op.desc.infer_shape(block.desc)
