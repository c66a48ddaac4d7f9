"""Spreading a graph over the IPUs of a replica by the number of its operations."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, Optional

from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.framework import ops

from ipu_conformance.emulator.tensorflow.api.ops import sharding
from ipu_conformance.emulator.tensorflow.compile import shards

__all__ = ["automatic_sharding", "ipu_autoshard"]

MARK = "_IpuAutoshard"


def automatic_sharding(
    num_shards: int,
    input_ts: Any,
    loss_ts: Any,
    edge_filter: Optional[Callable[[Any], bool]] = None,
    frozen_inference: bool = False,
) -> None:
    """Place all that lies between an input and a loss on IPUs 0 to ``num_shards`` - 1, in the order of the graph."""
    if num_shards < 1:
        raise ValueError(f"`num_shards` is {num_shards}; use 1 or more.")
    needed = {id(op) for op in sharding.dependencies([loss_ts])}
    between = [op for op in input_ts.graph.get_operations() if id(op) in needed and _after(op, input_ts)]
    if not between:
        raise ValueError(f"{loss_ts.name} does not depend on {input_ts.name}: there is nothing to shard.")
    for position, op in enumerate(between):
        ipu = position * num_shards // len(between)
        sharding.put(op, [ipu])
        shards.note(ipu)


def _after(op: Any, source: Any) -> bool:
    return any(found is source.op for found in sharding.dependencies([op]))


@contextlib.contextmanager
def ipu_autoshard() -> Iterator[None]:
    """What is made inside may be sharded."""
    with ops.get_default_graph()._attr_scope({MARK: attr_value_pb2.AttrValue(b=True)}):
        yield
