"""Keeping the forward pass, deleting ops that change nothing, and cutting what names no IPUs into equal runs of ops."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from ipu_conformance.emulator.paddle.compile.compilation import (
    FORWARD,
    LOSS,
    OPTIMIZER,
    SCHEDULE,
    Compilation,
    keep,
    place,
    role_of,
)
from ipu_conformance.emulator.paddle.compile.compositions import composed
from ipu_conformance.emulator.paddle.compile.passes.widths import narrowed

_KEPT_ROLES = (FORWARD, FORWARD | LOSS, SCHEDULE)


def extract(record: Compilation, values: Mapping[str, Any]) -> None:
    """Keep the ops of the forward pass, of the loss and of the learning rate, and the folded optimizer."""
    keep(record.program, forward_ops(record.ops()))


def forward_ops(ops: List[Any]) -> List[Any]:
    """The ops of the forward pass, and what is kept beside them."""
    return [op for op in ops if op.type == OPTIMIZER or role_of(op) in _KEPT_ROLES]


def delete_scale(record: Compilation, values: Mapping[str, Any]) -> None:
    """Delete every scale by one that adds nothing; what read its output reads its input instead."""
    record.forward = narrowed(composed(record.snapshot()))
    ops = record.ops()
    deleted: List[Any] = []
    instead: Dict[str, str] = {}
    for op in ops:
        for name in dict.fromkeys(op.input_arg_names):
            if name in instead:
                op.desc._rename_input(name, instead[name])
        written = op.output_arg_names
        if changes_nothing(op.desc) and _written_once(op, ops):
            instead[written[0]] = op.input("X")[0]
            deleted.append(op)
    keep(record.program, [op for op in ops if not any(op is gone for gone in deleted)])
    record.aliases.update(instead)


def changes_nothing(op: Any) -> bool:
    """Whether the desc of an op is a scale by one that adds nothing, as saving an inference model puts behind it."""
    if op.type() != "scale" or ("ScaleTensor" in op.input_names() and op.input("ScaleTensor")):
        return False
    return bool(op.attr("scale") == 1 and op.attr("bias") == 0)


def _written_once(scale: Any, ops: List[Any]) -> bool:
    """Whether input and output of a scale keep their values: each is written by one op at most."""
    names = {scale.input("X")[0], scale.output("Out")[0]}
    return len(names) == 2 and all(sum(name in op.output_arg_names for op in ops) <= 1 for name in names)


def average(record: Compilation, values: Mapping[str, Any]) -> None:
    """With ``need_avg_shard``, write index and stage on every op."""
    if record.strategy.value("need_avg_shard"):
        cut([op for op in record.ops() if op.type != OPTIMIZER], ipus_per_replica(record.strategy))


def cut(ops: List[Any], ipus: int) -> None:
    """Place ops on IPUs, each a stage of its own."""
    for op, index in zip(ops, runs(len(ops), ipus)):
        place(op.desc, index, index)


def runs(ops: int, ipus: int) -> List[int]:
    """The IPU of each op: the next one after every ``ops // ipus`` ops; what is left over stays on the last."""
    length = max(ops // ipus, 1)
    return [min(position // length, ipus - 1) for position in range(ops)]


def ipus_per_replica(strategy: Any) -> int:
    """The IPUs that one replica has."""
    replicas = strategy.value("replicated_graph_count") if strategy.value("enable_replicated_graphs") else 1
    return max(int(strategy.value("num_ipus")) // max(int(replicas), 1), 1)
