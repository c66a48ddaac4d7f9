"""Whether a compiled program fits the memory of its IPUs, by the estimate of the core."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, List, Tuple

from ipu_conformance.emulator.core import memory
from ipu_conformance.emulator.core import plan as planning
from ipu_conformance.emulator.core.plan import Plan
from ipu_conformance.emulator.paddle.errors import PopartError
from ipu_conformance.emulator.paddle.ir import lowering
from ipu_conformance.ir.graph import Graph


def check(record: Any, plan: Plan, *, pipelined: bool) -> None:
    """Raise PopartError, with what needs the space, for a program that an IPU cannot hold."""
    try:
        memory.check(estimate(record, plan, pipelined), plan.topology.device)
    except memory.OutOfMemory as error:
        raise PopartError(f"Out of memory: {error}") from error


def estimate(record: Any, plan: Plan, pipelined: bool) -> memory.MemoryEstimate:
    """The memory that every IPU of a replica needs."""
    graph = _of_known_size(lowering.forward(record))
    if not pipelined:
        ipus, graph = _runs(graph)
        plan = planning.plan(
            replace(plan.topology, placement=ipus),
            plan.schedule,
            plan.micro_batches,
            training=plan.training,
            device_iterations=plan.device_iterations,
        )
    # A strategy keeps the state of optimizers off the chip, where it takes no memory of an IPU.
    return memory.estimate(plan, graph, optimizer="sgd")


def _of_known_size(graph: Graph) -> Graph:
    """The graph with nothing in place of what has no size before it is computed: what is counted, there is at least."""
    unknown = {name: replace(tensor, dtype="BOOL", shape=(0,)) for name, tensor in graph.tensors.items()
               if tensor.nbytes is None}  # fmt: skip
    return replace(graph, tensors={**graph.tensors, **unknown}) if unknown else graph


def _runs(graph: Graph) -> Tuple[Tuple[int, ...], Graph]:
    """The IPUs of a sharded graph in the order in which it visits them, and the graph with each visit as a stage."""
    ipus: List[int] = []
    ops = []
    for op in graph.ops:
        if not ipus or ipus[-1] != (op.ipu or 0):
            ipus.append(op.ipu or 0)
        ops.append(replace(op, stage=len(ipus) - 1))
    return tuple(ipus or [0]), replace(graph, ops=tuple(ops))
