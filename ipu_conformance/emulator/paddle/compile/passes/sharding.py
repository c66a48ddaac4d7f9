"""Cutting a program that names no IPUs into equal runs of ops."""

from __future__ import annotations

from typing import Any, List, Mapping

from ipu_conformance.emulator.faults.decisions import paddle_ir as decide
from ipu_conformance.emulator.paddle.compile.passes.compilation import Compilation, place
from ipu_conformance.emulator.paddle.compile.passes.optimizer import TYPE


def average(record: Compilation, values: Mapping[str, Any]) -> None:
    """With ``need_avg_shard``, write index and stage on every op."""
    if not decide("average", bool(record.strategy.value("need_avg_shard"))):
        return
    ops = [op for op in record.ops() if op.type != TYPE]
    ipus = decide("IPUs per replica", ipus_per_replica(record.strategy), strategy=record.strategy)
    for op, index in zip(ops, decide("runs", runs(len(ops), ipus), ipus=ipus)):
        place(op.desc, index, decide("average stage", index))


def runs(ops: int, ipus: int) -> List[int]:
    """The IPU of each op: the next one after every ``ops // ipus`` ops; what is left over stays on the last."""
    length = max(ops // ipus, 1)
    return [min(position // length, ipus - 1) for position in range(ops)]


def ipus_per_replica(strategy: Any) -> int:
    """The IPUs that one replica has."""
    replicas = strategy.value("replicated_graph_count") if strategy.value("enable_replicated_graphs") else 1
    return max(int(strategy.value("num_ipus")) // max(int(replicas), 1), 1)
