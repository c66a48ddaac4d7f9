"""The pure list of slots that a configuration implies: what runs on which IPU, and in which tick.

All replicas do the same: a plan stores the columns of one replica and makes ``Slot`` objects when they are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from fractions import Fraction
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from ipu_conformance.emulator.core.schedules import Schedule, ScheduleError, Shape, SharedDeviceError, schedule
from ipu_conformance.emulator.core.topology import Topology
from ipu_conformance.errors import ConformanceError


class PlanError(ConformanceError):
    """A configuration cannot be planned."""


class Kind(IntEnum):
    """What a slot does."""

    FORWARD = 0
    RECOMPUTE = 1
    BACKWARD = 2
    REDUCE = 3
    UPDATE = 4

    def __str__(self) -> str:
        return self.name.lower()


NO_MICRO_BATCH = -1
"""The micro-batch of a reduction or an update, which belong to a whole iteration."""

COLUMNS = np.dtype(
    [
        ("tick", np.int64),
        ("ipu", np.int32),
        ("stage", np.int32),
        ("micro_batch", np.int32),
        ("iteration", np.int32),
        ("kind", np.int8),
    ]
)
"""One row a slot; ``ipu`` counts inside the replica, ``micro_batch`` through all iterations of one replica."""


class Slot(NamedTuple):
    """One IPU's work in one tick."""

    tick: int
    replica: int
    ipu: int
    stage: int
    micro_batch: int
    iteration: int
    kind: Kind

    def __str__(self) -> str:
        of = f"iteration {self.iteration}" if self.micro_batch < 0 else f"micro-batch {self.micro_batch}"
        where = f"IPU {self.ipu} of replica {self.replica}"
        return f"{self.kind} of stage {self.stage}, {of}, on {where} in tick {self.tick}"


@dataclass(frozen=True, eq=False)
class Plan:
    """Every slot of one call of the device, in order of tick and IPU."""

    topology: Topology
    schedule: Schedule
    micro_batches: int
    """Micro-batches of one replica that pass the pipeline before it is empty again."""
    device_iterations: int
    training: bool
    recompute: bool
    accumulate: bool
    columns: np.ndarray = field(repr=False)
    """The rows of one replica; the array cannot be written to."""

    @property
    def replicas(self) -> int:
        """Copies of the whole model, each with IPUs of its own."""
        return self.topology.replicas

    @property
    def stages(self) -> int:
        """Forward stages."""
        return self.topology.stages

    @property
    def ipus(self) -> int:
        """IPUs of one replica."""
        return self.topology.ipus_per_replica

    @property
    def total_micro_batches(self) -> int:
        """Micro-batches of one replica in all device iterations."""
        return self.micro_batches * self.device_iterations

    @property
    def updates(self) -> int:
        """How often the weights of a stage are updated."""
        if not self.training:
            return 0
        return self.device_iterations if self.accumulate else self.total_micro_batches

    @property
    def ticks(self) -> int:
        """The length of the plan."""
        return int(self.columns["tick"][-1]) + 1

    @property
    def shape(self) -> Shape:
        """What the formulas of the schedule depend on."""
        return Shape(self.topology, self.micro_batches, self.training, self.recompute, _tail(self))

    def __len__(self) -> int:
        return len(self.columns) * self.replicas

    def __iter__(self) -> Iterator[Slot]:
        """Every slot of every replica, in order of tick, replica and IPU."""
        rows = self.columns.tolist()
        start = 0
        for end in np.append(np.flatnonzero(np.diff(self.columns["tick"])) + 1, len(rows)).tolist():
            for replica in range(self.replicas):
                for row in rows[start:end]:
                    yield _slot(row, replica)
            start = end

    def slots(self, replica: int = 0) -> Iterator[Slot]:
        """The slots of one replica in order."""
        for row in self.columns.tolist():
            yield _slot(row, replica)

    def slot(self, index: int, replica: int = 0) -> Slot:
        """The slot of one row of the columns."""
        return _slot(self.columns[index].item(), replica)

    def rows(self, kind: Kind) -> np.ndarray:
        """The rows of one kind."""
        return self.columns[self.columns["kind"] == kind]

    def stash_depths(self) -> List[int]:
        """For every stage the largest number of micro-batches between forward and backward, counted in the columns."""
        if not self.training:
            return [0] * self.stages
        columns = self.columns[np.isin(self.columns["kind"], (Kind.FORWARD, Kind.BACKWARD))]
        columns = columns[np.argsort(columns["stage"], kind="stable")]
        waiting = np.cumsum(np.where(columns["kind"] == Kind.FORWARD, 1, -1))
        # Every stage ends with nothing stashed, so the running sum starts each stage at zero.
        starts = np.searchsorted(columns["stage"], np.arange(self.stages))
        return [int(depth) for depth in np.maximum.reduceat(waiting, starts)]

    def bubble(self) -> Fraction:
        """The idle share of the IPUs in use while micro-batches are in flight, counted; see ``Schedule.bubble``."""
        in_flight = self.columns
        if self.accumulate:
            in_flight = in_flight[in_flight["kind"] < Kind.REDUCE]
        # Without accumulation an iteration is a micro-batch.
        run = in_flight["micro_batch" if self.accumulate else "iteration"] // self.micro_batches
        first = np.searchsorted(run, np.arange(self.device_iterations))
        last = np.append(first[1:], len(run)) - 1
        ticks = int(np.sum(in_flight["tick"][last] - in_flight["tick"][first] + 1))
        return 1 - Fraction(len(in_flight), len(self.topology.used) * ticks)


def _tail(plan: Plan) -> int:
    return 0 if plan.accumulate or not plan.training else 1 + (plan.replicas > 1)


def _slot(row: Tuple[int, ...], replica: int) -> Slot:
    tick, ipu, stage, micro_batch, iteration, kind = row
    return Slot(tick, replica, ipu, stage, micro_batch, iteration, Kind(kind))


def plan(
    topology: Union[Topology, Sequence[int]],
    by: Union[str, Schedule],
    micro_batches: int,
    *,
    training: bool = True,
    recompute: bool = False,
    replicas: Optional[int] = None,
    device_iterations: int = 1,
    accumulate: bool = True,
) -> Plan:
    """The plan of ``device_iterations`` runs of a pipeline: filled, emptied and, in training, followed by an update.

    ``topology`` may be the IPU of each stage. ``micro_batches`` is per replica and run: the accumulation count in
    training, what passes before the pipeline is emptied in inference. ``accumulate=False`` updates after every
    micro-batch inside the pipeline, which PopART alone does.
    """
    if not isinstance(topology, Topology):
        topology = Topology(tuple(topology), replicas or 1)
    elif replicas is not None and replicas != topology.replicas:
        raise PlanError(f"{replicas} replicas were given for a topology of {topology.replicas}: give one of the two")
    chosen = schedule(by) if isinstance(by, str) else by
    for name, number in (("micro-batches", micro_batches), ("device iterations", device_iterations)):
        if number < 1:
            raise PlanError(f"{number} {name} were given: use 1 or more")
    if recompute and not training:
        raise PlanError("recomputation was asked for without training: inference has no backward to recompute for")
    if topology.sharing > 1 and not chosen.shares_devices:
        raise SharedDeviceError(
            f"The {chosen.name} schedule was given {topology.sharing} pipeline stages on one IPU: place each stage on "
            "an IPU of its own or use another schedule"
        )
    if not accumulate and (chosen.name != "popart" or not training):
        raise ScheduleError(f"the {chosen.name} schedule updates once per run: use accumulate=True, or popart to train")
    empty = Plan(
        topology, chosen, micro_batches, device_iterations, training, recompute, accumulate, np.empty(0, COLUMNS)
    )
    columns = _all_runs(empty)
    columns.flags.writeable = False
    return replace(empty, columns=columns)


def _all_runs(empty: Plan) -> np.ndarray:
    """The rows of every device iteration: one run, repeated later in time and with later micro-batches."""
    one, length = _one_run(empty)
    runs = empty.device_iterations
    columns = np.tile(one, runs)
    run = np.repeat(np.arange(runs, dtype=np.int64), len(one))
    columns["tick"] += run * length
    columns["iteration"] += (run if empty.accumulate else run * empty.micro_batches).astype(np.int32)
    numbered = columns["micro_batch"] != NO_MICRO_BATCH
    columns["micro_batch"][numbered] += (run[numbered] * empty.micro_batches).astype(np.int32)
    return columns


def _one_run(empty: Plan) -> Tuple[np.ndarray, int]:
    """The rows of one filling and emptying of the pipeline with what follows it, and its length in ticks."""
    shape, stages = empty.shape, empty.stages
    timing, length = empty.schedule.timing(shape), empty.schedule.length(shape)
    micro_batch = np.arange(empty.micro_batches)
    every = np.arange(stages)
    no_micro_batch = np.full(1, NO_MICRO_BATCH)
    after = [Kind.REDUCE, Kind.UPDATE] if empty.replicas > 1 else [Kind.UPDATE]
    # Without accumulation every micro-batch is an iteration of its own.
    iteration = np.zeros_like(micro_batch) if empty.accumulate else micro_batch
    parts = [_part(empty, Kind.FORWARD, every, timing.forward, micro_batch, iteration)]
    if empty.training:
        parts.append(_part(empty, Kind.BACKWARD, every, timing.backward, micro_batch, iteration))
        if empty.recompute:
            recomputed = every[:-1]
            parts.append(_part(empty, Kind.RECOMPUTE, recomputed, timing.backward[:-1] - 1, micro_batch, iteration))
        if empty.accumulate:
            rank = np.asarray(empty.topology.ranks)[:, None]
            for kind in after:
                parts.append(_part(empty, kind, every, length + rank, no_micro_batch, np.zeros(1, int)))
                length += empty.topology.sharing
        else:
            for later, kind in enumerate(after, 1):
                parts.append(_part(empty, kind, every, timing.backward + later, no_micro_batch, iteration))
    columns = np.concatenate(parts)
    order = np.argsort(columns["tick"] * empty.ipus + columns["ipu"], kind="stable")
    return columns[order], length


def _part(
    empty: Plan, kind: Kind, stages: np.ndarray, tick: np.ndarray, micro_batch: np.ndarray, iteration: np.ndarray
) -> np.ndarray:
    """The rows of one kind for the given stages; ``tick`` is an array of [stage, micro-batch]."""
    part = np.empty(tick.shape, COLUMNS)
    part["tick"] = tick
    part["stage"] = stages[:, None]
    part["ipu"] = np.asarray(empty.topology.placement, np.int32)[stages][:, None]
    part["micro_batch"] = micro_batch
    part["iteration"] = iteration
    part["kind"] = kind
    return part.ravel()
