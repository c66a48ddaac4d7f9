"""An estimate of the memory that each IPU of a replica needs, over the time of a plan.

The model is documented, with its formulae, in docs/estimates.md. It counts what a program must hold; how a vendor's
compiler lays it out, pads it or reuses it is not modelled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from ipu_conformance.emulator.core.device import Device
from ipu_conformance.emulator.core.plan import Kind, Plan
from ipu_conformance.emulator.core.stage_loads import StageLoad, device_bytes, is_float, stage_loads, total_bytes
from ipu_conformance.errors import ConformanceError
from ipu_conformance.ir.graph import Graph
from ipu_conformance.text_table import text_table

STATE_SLOTS: Mapping[str, int] = {
    "sgd": 0,
    "momentum": 1,
    "adagrad": 1,
    "rmsprop": 1,
    "rmsprop-centered": 2,
    "adadelta": 2,
    "adam": 2,
    "adamw": 2,
    "adamax": 2,
    "lamb": 2,
}
"""How many values each optimizer keeps beside a weight; a momentum of rmsprop is one more, by ``extra_slots``."""

STATE_BYTES = 4
"""Optimizer state is held in float32."""
CODE_BYTES_PER_TILE = 16 * 1024
CODE_BYTES_PER_TILE_AND_OP = 256
"""Guesses of the code's size: what every program has, and what each op of each direction adds."""
BUFFERS = 2
"""A host tensor is double-buffered: one copy is used while the next is in transfer."""
MOST_NAMED = 5

PERSISTENT = ("weights", "optimizer_state", "gradients", "code", "io_buffers")
VARYING = ("stash", "boundaries", "working")
_STASH, _BOUNDARIES, _WORKING = range(3)


class MemoryEstimateError(ConformanceError):
    """A memory estimate was asked for that the model does not cover."""


class OutOfMemory(ConformanceError):  # noqa: N818 (the name users know from every framework)
    """An IPU needs more memory than it has, by the estimate."""


class HeldTensor(NamedTuple):
    """A tensor that an IPU holds: how many copies, and for what purpose."""

    name: str
    nbytes: int
    copies: int
    part: str

    @property
    def total(self) -> int:
        """Bytes of all copies."""
        return self.nbytes * self.copies

    def __str__(self) -> str:
        times = f", {self.copies} copies" if self.copies > 1 else ""
        return f"{self.name!r} {size_text(self.total)} ({self.part}{times})"


@dataclass(frozen=True, eq=False)
class Timeline:
    """The bytes that vary, as steps: ``nbytes[i]`` from ``ticks[i]`` on until the next; columns as in ``VARYING``."""

    ticks: np.ndarray = field(repr=False)
    nbytes: np.ndarray = field(repr=False)

    def at(self, tick: int) -> np.ndarray:
        """The bytes by part during one tick."""
        index = int(np.searchsorted(self.ticks, tick, side="right")) - 1
        return self.nbytes[index] if index >= 0 else np.zeros(len(VARYING), np.int64)


@dataclass(frozen=True)
class IpuMemory:
    """What one IPU needs: the parts that stay, and those that vary as they are at its peak."""

    ipu: int
    weights: int
    optimizer_state: int
    gradients: int
    code: int
    io_buffers: int
    stash: int
    boundaries: int
    working: int
    peak_tick: int
    over_time: Timeline
    largest: Tuple[HeldTensor, ...]

    @property
    def persistent(self) -> int:
        """Bytes that are held all the time."""
        return sum(getattr(self, part) for part in PERSISTENT)

    @property
    def peak(self) -> int:
        """The most bytes that are held at once."""
        return self.persistent + self.stash + self.boundaries + self.working


@dataclass(frozen=True)
class MemoryEstimate:
    """An estimate, not a measurement: per IPU of one replica; all replicas are alike."""

    ipus: Tuple[IpuMemory, ...]
    replicas: int

    @property
    def peak(self) -> int:
        """What the fullest IPU needs."""
        return max(ipu.peak for ipu in self.ipus)

    @property
    def over_time(self) -> Tuple[Timeline, ...]:
        """The varying bytes of every IPU."""
        return tuple(ipu.over_time for ipu in self.ipus)

    @property
    def largest(self) -> Tuple[HeldTensor, ...]:
        """The largest tensors of the fullest IPU."""
        return max(self.ipus, key=lambda ipu: ipu.peak).largest

    def total(self, part: str) -> int:
        """One part, such as ``weights``, summed over the IPUs of a replica."""
        return sum(getattr(ipu, part) for ipu in self.ipus)

    def __str__(self) -> str:
        """A table with one row per IPU."""
        parts = (*PERSISTENT, *VARYING, "peak")
        rows = [["IPU", *(part.replace("_", " ") for part in parts)]]
        rows += [[str(ipu.ipu), *(size_text(getattr(ipu, part)) for part in parts)] for ipu in self.ipus]
        table = text_table(rows, align=str.rjust)
        return "\n".join([f"estimated memory of each of {self.replicas} replicas", *table])


def estimate(plan: Plan, graph: Graph, *, optimizer: str = "sgd", extra_slots: int = 0) -> MemoryEstimate:
    """The memory that a plan needs for a forward graph of one micro-batch, on the device of the plan's topology."""
    if optimizer not in STATE_SLOTS:
        raise MemoryEstimateError(f"optimizer {optimizer!r} is not known; use one of {', '.join(STATE_SLOTS)}")
    if extra_slots < 0:
        raise MemoryEstimateError(f"{extra_slots} extra slots were given; use 0 or more")
    loads = stage_loads(graph, plan)
    sizes = _Sizes(graph, loads, plan)
    slots = STATE_SLOTS[optimizer] + extra_slots
    timelines = _timelines(plan, sizes)
    return MemoryEstimate(
        tuple(
            _ipu_memory(
                ipu, plan, graph, [loads[stage] for stage in plan.topology.stages_on(ipu)], sizes, slots, timeline
            )
            for ipu, timeline in enumerate(timelines)
        ),
        plan.replicas,
    )


def check(memory: MemoryEstimate, device: Device) -> None:
    """Raise OutOfMemory, naming the IPU and its largest tensors, where an IPU needs more than the device has."""
    for ipu in memory.ipus:
        if ipu.peak > device.memory:
            raise OutOfMemory(
                f"IPU {ipu.ipu} needs an estimated {size_text(ipu.peak)} in tick {ipu.peak_tick} and has "
                f"{size_text(device.memory)}; its largest tensors are {', '.join(map(str, ipu.largest))}: "
                f"use more IPUs, a smaller micro-batch or recomputation"
            )


def size_text(nbytes: int) -> str:
    """A size for messages, in the largest unit that is at least 1."""
    for unit, scale in (("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= scale:
            return f"{nbytes / scale:,.1f} {unit}"
    return f"{nbytes} B"


class _Sizes:
    """Bytes by stage, as arrays: what a micro-batch leaves in the stash, and what a slot needs while it runs."""

    def __init__(self, graph: Graph, loads: Sequence[StageLoad], plan: Plan) -> None:
        produced = np.array([total_bytes(graph, load.produced) for load in loads], np.int64)
        inputs = np.array([total_bytes(graph, load.inputs) for load in loads], np.int64)
        live = np.array([load.live for load in loads], np.int64)
        self.depths = plan.stash_depths()
        largest = [max((device_bytes(graph, name) for name in load.trainable), default=0) for load in loads]
        # The last stage's backward follows its forward: it is never recomputed.
        recomputed = np.arange(plan.stages) < plan.stages - 1 if plan.recompute else np.zeros(plan.stages, bool)
        self.recomputed = recomputed
        self.stash = inputs + np.where(recomputed, 0, produced)
        self.working = np.zeros((len(Kind), plan.stages), np.int64)
        self.working[Kind.FORWARD] = np.where(recomputed | (not plan.training), live, 0)
        self.working[Kind.RECOMPUTE] = produced
        self.working[Kind.BACKWARD] = live + np.where(recomputed, produced, 0)
        self.working[Kind.REDUCE] = self.working[Kind.UPDATE] = largest
        self.forward_sends = {
            (load.stage, later): total_bytes(graph, names) for load in loads for later, names in load.sends.items()
        }
        self.backward_sends = {
            (load.stage, later): total_bytes(graph, tuple(name for name in names if is_float(graph.tensors[name])))
            for load in loads
            for later, names in load.sends.items()
        }


def _timelines(plan: Plan, sizes: _Sizes) -> List[Timeline]:
    """Every IPU's varying bytes: what each slot adds and frees, summed in the order of ticks."""
    columns = plan.columns
    tick, stage, ipu = columns["tick"], columns["stage"], columns["ipu"].astype(np.int64)
    events = _Events()
    working = sizes.working[columns["kind"], stage]
    events.hold(ipu, _WORKING, tick, tick + 1, working)
    rows: Dict[Kind, List[np.ndarray]] = {}
    for kind in (Kind.FORWARD, Kind.BACKWARD):
        of_kind = np.flatnonzero(columns["kind"] == kind)
        order = of_kind[np.argsort(stage[of_kind], kind="stable")]
        rows[kind] = np.split(order, np.searchsorted(stage[order], np.arange(1, plan.stages)))
    if plan.training:
        for kind, sign, later in ((Kind.FORWARD, 1, 0), (Kind.BACKWARD, -1, 1)):
            chosen = np.concatenate(rows[kind])
            events.change(ipu[chosen], _STASH, tick[chosen] + later, sign * sizes.stash[stage[chosen]])
    placement = plan.topology.placement
    for kind, sends in ((Kind.FORWARD, sizes.forward_sends), (Kind.BACKWARD, sizes.backward_sends)):
        for (early, late), nbytes in sends.items():
            sender, receiver = (early, late) if kind == Kind.FORWARD else (late, early)
            # The n-th slot of the sender feeds the n-th of the receiver: stages keep the order of micro-batches.
            arrives, leaves = tick[rows[kind][sender]] + 1, tick[rows[kind][receiver]] + 1
            where = np.full(len(arrives), placement[receiver], np.int64)
            if len(arrives):
                events.hold(where, _BOUNDARIES, arrives, leaves, np.full(len(arrives), nbytes, np.int64))
    return events.timelines(plan.ipus)


class _Events:
    """Changes of the varying bytes, collected as arrays and summed at the end."""

    def __init__(self) -> None:
        self._parts: List[Tuple[np.ndarray, int, np.ndarray, np.ndarray]] = []

    def change(self, ipu: np.ndarray, part: int, tick: np.ndarray, nbytes: np.ndarray) -> None:
        """Add ``nbytes`` to a part from ``tick`` on."""
        self._parts.append((ipu, part, tick, nbytes))

    def hold(self, ipu: np.ndarray, part: int, start: np.ndarray, end: np.ndarray, nbytes: np.ndarray) -> None:
        """Hold ``nbytes`` from ``start`` until just before ``end``."""
        needed = nbytes != 0
        self.change(ipu[needed], part, start[needed], nbytes[needed])
        self.change(ipu[needed], part, end[needed], -nbytes[needed])

    def timelines(self, ipus: int) -> List[Timeline]:
        ipu = np.concatenate([part[0] for part in self._parts])
        tick = np.concatenate([part[2] for part in self._parts])
        span = int(tick.max(initial=0)) + 1
        moments, inverse = np.unique(ipu * span + tick, return_inverse=True)
        change = np.zeros((len(moments), len(VARYING)), np.int64)
        start = 0
        for _, part, ticks, nbytes in self._parts:
            np.add.at(change[:, part], inverse[start : start + len(ticks)], nbytes)
            start += len(ticks)
        # Every IPU ends with nothing held, so the running sum starts each IPU at zero.
        held = np.cumsum(change, axis=0)
        bounds = np.searchsorted(moments, np.arange(ipus + 1) * span)
        return [Timeline(moments[a:b] - i * span, held[a:b]) for i, (a, b) in enumerate(zip(bounds, bounds[1:]))]


def _ipu_memory(
    ipu: int, plan: Plan, graph: Graph, loads: Sequence[StageLoad], sizes: _Sizes, slots: int, timeline: Timeline
) -> IpuMemory:
    device = plan.topology.device
    trainable = tuple(name for load in loads for name in load.trainable) if plan.training else ()
    elements = sum(graph.tensors[name].elements or 0 for name in trainable)
    ops = sum(len(load.ops) for load in loads) * (2 if plan.training else 1)
    host = tuple(
        name
        for load in loads
        for name in (
            *(name for name in load.inputs if name in graph.inputs),
            *(name for name in load.produced if name in graph.outputs),
        )
    )
    totals = timeline.nbytes.sum(axis=1)
    at = int(np.argmax(totals)) if len(totals) else -1
    stash, boundaries, working = (int(part) for part in timeline.nbytes[at]) if at >= 0 else (0, 0, 0)
    return IpuMemory(
        ipu=ipu,
        weights=sum(total_bytes(graph, load.weights) for load in loads),
        optimizer_state=elements * slots * STATE_BYTES,
        gradients=total_bytes(graph, trainable),
        code=device.tiles * (CODE_BYTES_PER_TILE + CODE_BYTES_PER_TILE_AND_OP * ops) if loads else 0,
        io_buffers=BUFFERS * total_bytes(graph, host),
        stash=stash,
        boundaries=boundaries,
        working=working,
        peak_tick=int(timeline.ticks[at]) if at >= 0 else 0,
        over_time=timeline,
        largest=_largest(graph, loads, sizes),
    )


def _largest(graph: Graph, loads: Sequence[StageLoad], sizes: _Sizes) -> Tuple[HeldTensor, ...]:
    held: List[HeldTensor] = []
    for load in loads:
        depth = sizes.depths[load.stage]
        kept = (() if sizes.recomputed[load.stage] else load.produced) + load.inputs
        held += [HeldTensor(name, device_bytes(graph, name), 1, "weight") for name in load.weights]
        held += [HeldTensor(name, device_bytes(graph, name), depth, "stash") for name in kept if depth]
        held += [HeldTensor(name, device_bytes(graph, name), 1, "activation") for name in load.produced if not depth]
    return tuple(sorted(held, key=lambda item: (-item.total, item.name))[:MOST_NAMED])
