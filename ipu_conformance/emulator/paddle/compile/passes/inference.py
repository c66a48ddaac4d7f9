"""The passes that ``paddle.inference`` adds: settings are checked, types transferred, feeds and fetches put back."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from paddle.base import core

from ipu_conformance.emulator.paddle import refusals
from ipu_conformance.emulator.paddle.compile.compilation import FORWARD, ROLE, Compilation, insert_cast, name_of
from ipu_conformance.emulator.paddle.compile.passes.forward import ipus_per_replica
from ipu_conformance.emulator.paddle.compile.passes.shapes import TYPE_ATTRIBUTES
from ipu_conformance.emulator.paddle.compile.subprograms import new_variable

_TYPES = core.VarDesc.VarType
HALF = "@FP16"
"""What stands behind the name of a feed or a fetch to name its value in float16."""

_STATISTICS = {
    "batch_norm": ("Scale", "Bias", "Mean", "Variance", "MeanOut", "VarianceOut", "SavedMean", "SavedVariance")
}
"""Slots that stay in float32 whatever the data is in."""


def process(record: Compilation, values: Mapping[str, Any]) -> None:
    """Refuse settings that do not fit an inference, and note what is fed and fetched."""
    record.feeds = tuple(name_of(feed) for feed in values.get("feed_list", ()))
    record.fetches = tuple(name_of(fetch) for fetch in values.get("fetch_list", ()))
    strategy = record.strategy
    refusals.PREDICTOR_TRAINS(training=strategy.value("is_training"))
    refusals.PREDICTOR_BATCHES(
        pipelined=strategy.value("enable_pipelining"),
        batches=int(strategy.value("batches_per_step")),
        ipus=ipus_per_replica(strategy),
    )


def transfer(record: Compilation, values: Mapping[str, Any]) -> None:
    """With ``enable_fp16``, compute and hold weights in float16; feeds and fetches stay float32, with casts between."""
    if not record.strategy.value("enable_fp16"):
        return
    block = record.program.global_block()
    kept = {name for op in block.ops for slot in _STATISTICS.get(op.type, ()) for name in _slot(op, slot)}
    for op in block.ops:
        for name in TYPE_ATTRIBUTES:
            if op.has_attr(name) and op.attr(name) == int(_TYPES.FP32):
                op.desc._set_attr(name, int(_TYPES.FP16))
    outside = [name for name in dict.fromkeys((*record.feeds, *record.fetches)) if _is_float(block, name)]
    for name in outside:
        _cast_between(record, name)
    for desc in record.program.global_block().desc.all_vars():
        plain = desc.type() == _TYPES.LOD_TENSOR and desc.dtype() == _TYPES.FP32
        if plain and desc.name() not in kept and desc.name() not in outside:
            desc.set_dtype(_TYPES.FP16)


def _slot(op: Any, slot: str) -> List[str]:
    """The variables of an input or output slot."""
    if slot in op.input_names:
        return list(op.input(slot))
    return list(op.output(slot)) if slot in op.output_names else []


def _is_float(block: Any, name: str) -> bool:
    desc = block.desc.find_var(name.encode())
    return desc is not None and desc.dtype() == _TYPES.FP32


def _cast_between(record: Compilation, name: str) -> None:
    """Make the ops of a program use a feed or a fetch in float16, with a cast at the border."""
    block = record.program.global_block()
    users: Dict[bool, List[int]] = {True: [], False: []}
    for index, op in enumerate(block.ops):
        if name in op.output_arg_names:
            users[True].append(index)
            op.desc._rename_output(name, name + HALF)
        if name in op.input_arg_names:
            users[False].append(index)
            op.desc._rename_input(name, name + HALF)
    new_variable(block.desc, name + HALF, _TYPES.FP32, block.var(name).desc.shape())
    inside, outside = (name + HALF, _TYPES.FP16), (name, _TYPES.FP32)
    if users[True]:
        at = users[True][-1]
        insert_cast(block.desc, at + 1, block.ops[at].desc, inside, outside)
    elif users[False]:
        at = users[False][0]
        insert_cast(block.desc, at, block.ops[at].desc, outside, inside)
    record.refresh()


def postprocess(record: Compilation, values: Mapping[str, Any]) -> None:
    """Put an op before and after the runtime for every feed and fetch, as a predictor reads them."""
    block = record.program.global_block().desc
    for name, kind in (("feed", _TYPES.FEED_MINIBATCH), ("fetch", _TYPES.FETCH_LIST)):
        desc = block.var(name.encode())
        desc.set_type(kind)
        desc.set_persistable(True)
    _put_back(block, record.feeds, record.fetches)
    record.refresh()


def _put_back(block: Any, feeds: Sequence[str], fetches: Sequence[str]) -> None:
    """Put an op for every feed in front of a block, and one for every fetch behind it."""
    for column, name in reversed(list(enumerate(feeds))):
        _column(block._prepend_op(), "feed", "feed", name, column)
    for column, name in enumerate(fetches):
        _column(block.append_op(), "fetch", name, "fetch", column)


def _column(desc: Any, type: str, source: str, target: str, column: int) -> None:
    desc.set_type(type)
    desc.set_input("X", [source])
    desc.set_output("Out", [target])
    desc._set_attr("col", column)
    desc._set_attr(ROLE, FORWARD)
