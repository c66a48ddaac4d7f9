"""Whether a compiled program fits the memory of its IPUs, by the estimate of the core."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ipu_conformance.emulator import memory
from ipu_conformance.emulator import plan as planning
from ipu_conformance.emulator.paddle import lowering
from ipu_conformance.emulator.paddle.errors import PopartError
from ipu_conformance.emulator.paddle.rules import decide
from ipu_conformance.emulator.plan import Plan


def check(record: Any, plan: Plan, *, pipelined: bool) -> None:
    """Raise PopartError, with what needs the space, for a program that an IPU cannot hold."""
    try:
        memory.check(_estimate(record, plan, pipelined), plan.topology.device)
    except memory.OutOfMemory as error:
        if decide("refuse what does not fit", True):
            raise PopartError(f"Out of memory: {error}") from error


def _estimate(record: Any, plan: Plan, pipelined: bool) -> memory.MemoryEstimate:
    if not pipelined:
        # Shards come and go between IPUs, which an estimate of what each of them holds need not know.
        placed = replace(plan.topology, placement=plan.topology.used)
        plan = planning.plan(
            placed, plan.schedule, plan.micro_batches, training=plan.training, device_iterations=plan.device_iterations
        )
    # A strategy keeps the state of optimizers off the chip, where it takes no memory of an IPU.
    return memory.estimate(plan, lowering.forward(record), optimizer="sgd")
