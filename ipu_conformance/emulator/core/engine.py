"""The engine that all front ends share: it runs a plan by calling a machine, slot by slot.

The engine owns what moves between slots (boundaries, stashes, gradients of boundaries); the machine owns weights,
accumulated gradients and optimizer state of every replica and does the arithmetic on its framework's tensors.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter_ns
from typing import Any, Dict, List, NamedTuple, Optional, Protocol, Sequence, Tuple

import numpy as np

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.core.plan import Kind, Plan, Slot
from ipu_conformance.emulator.core.trace import Recorder, Row
from ipu_conformance.errors import ConformanceError


class ExecutionError(ConformanceError):
    """A slot cannot be executed, because what it needs was never produced."""


class Machine(Protocol):
    """What a front end provides; the engine only moves boundaries, stashes and gradients, so they may be of any type.

    With ``parallel`` the methods that name a replica are called from one thread per replica.
    """

    divisor: float
    """What summed gradients are divided by: accumulation x replicas for a mean, 1 for a sum."""

    def forward(self, replica: int, stage: int, micro_batch: int, boundary: Any, keep: bool) -> Tuple[Any, Any]:
        """What the stage hands on (the last stage: its output), and with ``keep`` the stash that backward needs."""

    def recompute(self, replica: int, stage: int, micro_batch: int, boundary: Any) -> Any:
        """The stash, from the boundary that forward was given."""

    def backward(self, replica: int, stage: int, micro_batch: int, stash: Any, gradient: Any) -> Any:
        """Accumulates the gradients of the stage's weights and returns that of its input boundary.

        ``gradient`` is None at the last stage; what stage 0 returns is dropped.
        """

    def gradients(self, replica: int, stage: int) -> Any:
        """The gradients that were accumulated: an array, or a dict of them."""

    def reduce(self, stage: int, gradients: List[Any]) -> List[Any]:
        """The gradients that each replica updates with: usually the sum of all, over ``divisor``."""

    def update(self, replica: int, stage: int, gradients: Any) -> None:
        """Takes one step of the optimizer and forgets what was accumulated."""

    def weights(self, replica: int, stage: int) -> Dict[str, Any]:
        """Copies of the stage's weights by name; asked for only when a fault is on."""

    def set_weights(self, replica: int, stage: int, weights: Dict[str, Any]) -> None:
        """Replaces the stage's weights; called only when a fault is on."""


class _Segment(NamedTuple):
    """Rows that every replica executes on its own, and the reductions at which all of them then meet."""

    rows: List[Tuple[int, ...]]
    reductions: List[Tuple[int, ...]]


class _Replica:
    """What one replica holds between slots, by stage and micro-batch."""

    def __init__(self, number: int, inputs: Sequence[Any], plan: Plan, record: Optional[List[Row]]) -> None:
        stages = plan.stages
        self.number = number
        self.inputs = inputs
        self.boundaries: List[Dict[int, Any]] = [{} for _ in range(stages)]
        self.stashes: List[Dict[int, Any]] = [{} for _ in range(stages)]
        self.gradients: List[Dict[int, Any]] = [{} for _ in range(stages)]
        self.reduced: Dict[int, Any] = {}
        self.outputs: List[Any] = [_MISSING] * plan.total_micro_batches
        self.record = record


_MISSING = object()
# Plain integers: comparing a row with a member of an enumeration would cost more than the rest of a slot.
_FORWARD, _RECOMPUTE, _BACKWARD = int(Kind.FORWARD), int(Kind.RECOMPUTE), int(Kind.BACKWARD)


class Engine:
    """Runs one plan on one machine, as often as it is called."""

    def __init__(self, plan: Plan, machine: Machine, *, parallel: bool = False) -> None:
        self.plan = plan
        self.machine = machine
        self._segments = _segments(faults.at("plan.slots", plan.columns))
        self._pool = ThreadPoolExecutor(plan.replicas) if parallel and plan.replicas > 1 else None

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads of a parallel engine."""
        if self._pool is not None:
            self._pool.shutdown()

    def run(self, inputs: Sequence[Sequence[Any]], recorder: Optional[Recorder] = None) -> List[List[Any]]:
        """Execute every slot on ``inputs[replica][micro_batch]``; the last stage's outputs come back in that order."""
        plan = self.plan
        if len(inputs) != plan.replicas or any(len(fed) != plan.total_micro_batches for fed in inputs):
            counts = [len(fed) for fed in inputs]
            raise ExecutionError(
                f"inputs for {len(counts)} replicas with {counts} micro-batches were given: the plan needs "
                f"{plan.replicas} with {plan.total_micro_batches} each"
            )
        replicas = [
            _Replica(number, fed, plan, None if recorder is None else recorder.events[number])
            for number, fed in enumerate(inputs)
        ]
        for rows, reductions in self._segments:
            if self._pool is None:
                for replica in replicas:
                    self._execute(replica, rows)
            else:
                self._execute_in_parallel(replicas, rows)
            for row in reductions:
                self._reduce(replicas, row)
        for replica in replicas:
            for micro_batch, output in enumerate(replica.outputs):
                if output is _MISSING:
                    raise ExecutionError(
                        f"micro-batch {micro_batch} of replica {replica.number} never left the last stage: the slots "
                        "that were executed leave it out"
                    )
        return [replica.outputs for replica in replicas]

    def _execute_in_parallel(self, replicas: Sequence[_Replica], rows: List[Tuple[int, ...]]) -> None:
        assert self._pool is not None
        futures: List[Future[None]] = [self._pool.submit(self._execute, replica, rows) for replica in replicas]
        # Every thread ends before the first error is raised, so none is left running.
        errors = [future.exception() for future in futures]
        for error in errors:
            if error is not None:
                raise error

    def _execute(self, replica: _Replica, rows: List[Tuple[int, ...]]) -> None:
        """One replica's slots up to the next reduction. The loop is kept flat: it is all the overhead of a slot."""
        plan, machine, number, record = self.plan, self.machine, replica.number, replica.record
        last, training, recompute = plan.stages - 1, plan.training, plan.recompute
        boundaries, stashes, gradients = replica.boundaries, replica.stashes, replica.gradients
        start = 0
        for row in rows:
            _, _, stage, micro_batch, _, kind = row
            if record is not None:
                start = perf_counter_ns()
            try:
                if kind == _FORWARD:
                    boundary = boundaries[stage].pop(micro_batch) if stage else replica.inputs[micro_batch]
                    recomputed = recompute and stage != last
                    output, stash = machine.forward(number, stage, micro_batch, boundary, training and not recomputed)
                    if training:
                        stashes[stage][micro_batch] = boundary if recomputed else stash
                    if stage == last:
                        replica.outputs[micro_batch] = output
                    else:
                        boundaries[stage + 1][micro_batch] = _handed_on(output, number, row)
                elif kind == _BACKWARD:
                    stash = stashes[stage].pop(micro_batch)
                    gradient = None if stage == last else gradients[stage].pop(micro_batch)
                    gradient = machine.backward(number, stage, micro_batch, stash, gradient)
                    if stage:
                        gradients[stage - 1][micro_batch] = _handed_on(gradient, number, row)
                elif kind == _RECOMPUTE:
                    inputs = stashes[stage]
                    inputs[micro_batch] = machine.recompute(number, stage, micro_batch, inputs[micro_batch])
                else:
                    self._update(replica, row)
            except KeyError as error:
                # An error of the machine's own has deeper frames and passes as it is.
                if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                    raise
                raise _missing_input(number, row) from None
            if record is not None:
                record.append((number, *row, start, perf_counter_ns() - start))  # type: ignore[arg-type]

    def _reduce(self, replicas: Sequence[_Replica], row: Tuple[int, ...]) -> None:
        """All replicas reduce the gradients of one stage together."""
        start = perf_counter_ns()
        stage = row[2]
        for replica, reduced in zip(replicas, self._reduced_gradients(stage, [replica.number for replica in replicas])):
            replica.reduced[stage] = reduced
        duration = perf_counter_ns() - start
        for replica in replicas:
            if replica.record is not None:
                replica.record.append((replica.number, *row, start, duration))  # type: ignore[arg-type]

    def _reduced_gradients(self, stage: int, replicas: Sequence[int]) -> List[Any]:
        gradients = [self.machine.gradients(replica, stage) for replica in replicas]
        gradients = faults.at("reduce.gradients", gradients, divisor=self.machine.divisor, stage=stage)
        return self.machine.reduce(stage, gradients)

    def _update(self, replica: _Replica, row: Tuple[int, ...]) -> None:
        """One step of one stage; a single replica has no reduce slot, so it divides its gradients here."""
        stage = row[2]
        number, machine = replica.number, self.machine
        reduced = (
            replica.reduced.pop(stage, _MISSING)
            if self.plan.replicas > 1
            else self._reduced_gradients(stage, [number])[0]
        )
        if reduced is _MISSING:
            raise _missing_input(number, row)
        machine.update(number, stage, reduced)


def _missing_input(replica: int, row: Tuple[int, ...]) -> ExecutionError:
    tick, ipu, stage, micro_batch, iteration, kind = row
    slot = Slot(tick, replica, ipu, stage, micro_batch, iteration, Kind(kind))
    return ExecutionError(f"{slot} has no input: the slot that makes it was not executed before")


def _handed_on(value: Any, replica: int, row: Tuple[int, ...]) -> Any:
    """What the next stage receives of what one stage made in a slot."""
    _, _, stage, micro_batch, _, kind = row
    return faults.at("execute.boundary", value, replica=replica, stage=stage, micro_batch=micro_batch, kind=kind)


def _segments(columns: np.ndarray) -> List[_Segment]:
    """The rows cut after each group of reductions."""
    segments = [_Segment([], [])]
    for row in columns.tolist():
        if row[5] == Kind.REDUCE:
            segments[-1].reductions.append(row)
        elif segments[-1].reductions:
            segments.append(_Segment([row], []))
        else:
            segments[-1].rows.append(row)
    return segments
