"""When each stage works on each micro-batch: the four schedules, as closed formulas.

A schedule is a row of ``SCHEDULES``. Time is counted in ticks; in one tick an IPU executes at most one slot. The
notation below: S forward stages s = 0 … S-1 on N distinct IPUs, at most K of them on one IPU, M micro-batches m; k is
the rank of a stage among those of its IPU; r is 1 with recomputation and 0 without. The last stage is never
recomputed, because its backward follows its forward.

Training, in cycles of K (2 + r) ticks in which each IPU runs its forwards, then its backwards:

======== ================= ===================== ============ ===================
schedule cycle of forward  cycle of backward     cycles       stash of stage s
======== ================= ===================== ============ ===================
grouped  m + s             m + 2S - 1 - s        M + 2S - 1   2 (S - s)
popart   m + s             m + 2S - 2 - s        M + 2S - 2   2 (S - s) - 1
======== ================= ===================== ============ ===================

PopART merges the last forward and the first backward into one of its 2S-1 stages, hence one cycle less than grouped.
The interleaved schedule has beats of 1 + r ticks, and neighbouring IPUs alternate between forward and backward: the
forward is in beat 2m + s, the backward in beat 2m + 2S - 1 - s, of 2 (M + S - 1) beats; stage s stashes S - s. The
sequential schedule finishes one micro-batch before the next and one slot at a time, and stashes 1.

Inference is one forward slot per stage and micro-batch in tick K (m + s) + k, or S m + s in the sequential schedule; it
ends with the last stage's last.

The bubble is the idle share of the N IPUs during these ticks, reductions and updates left out. With K = 1 and r = 0:
grouped (2N-1)/(M+2N-1), popart (2N-2)/(M+2N-2), interleaved and inference (N-1)/(M+N-1), sequential 1 - 1/N.

PopART alone also trains without accumulating: every backward is then followed, at its stage and before the pipeline is
empty, by t more slots (update, or reduce and update), its cycles have K (2 + r + t) ticks, and later micro-batches that
are in flight see weights that are newer in some stages than in others, as on the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Callable, Dict, Tuple

import numpy as np

from ipu_conformance.emulator.core.topology import Topology
from ipu_conformance.errors import ConformanceError

Array = np.ndarray


class ScheduleError(ConformanceError):
    """A schedule does not exist or cannot run the stages as they are placed."""


class SharedDeviceError(ScheduleError):
    """A schedule that needs each stage on its own IPU was given two stages on one; TensorFlow: NotImplementedError."""


@dataclass(frozen=True)
class Shape:
    """What the formulas depend on."""

    topology: Topology
    micro_batches: int
    training: bool = True
    recompute: bool = False
    tail: int = 0
    """Slots after every backward when gradients are not accumulated: update, or reduce and update."""

    @property
    def backward_ticks(self) -> int:
        """Consecutive ticks of one backward: recompute, backward, tail."""
        return self.recompute + 1 + self.tail

    @property
    def slots_per_micro_batch(self) -> int:
        """Slots of one micro-batch over all stages."""
        stages = self.topology.stages
        if not self.training:
            return stages
        return stages * (2 + self.tail) + (stages - 1) * self.recompute


@dataclass(frozen=True)
class Timing:
    """Ticks as arrays of [stage, micro-batch]; ``backward`` is empty for inference.

    A recompute is in the tick before its backward, and a tail in those after it.
    """

    forward: Array
    backward: Array


@dataclass(frozen=True)
class Schedule:
    """A row of the table of schedules: when the slots are, and how long a run takes."""

    name: str
    timing: Callable[[Shape], Timing]
    length: Callable[[Shape], int]
    """The ticks of one run of the pipeline."""
    shares_devices: bool = True

    def bubble(self, shape: Shape) -> Fraction:
        """The idle share of the IPUs in use while micro-batches are in flight."""
        busy = shape.slots_per_micro_batch * shape.micro_batches
        return 1 - Fraction(busy, len(shape.topology.used) * self.length(shape))


def _grid(shape: Shape) -> Tuple[Array, Array, Array]:
    """Stage, rank and micro-batch numbers that broadcast to [stage, micro-batch]."""
    stage = np.arange(shape.topology.stages, dtype=np.int64)[:, None]
    rank = np.asarray(shape.topology.ranks, dtype=np.int64)[:, None]
    return stage, rank, np.arange(shape.micro_batches, dtype=np.int64)[None, :]


_NOTHING = np.empty((0, 0), dtype=np.int64)


def _fill(shape: Shape) -> Timing:
    """Inference of every pipelined schedule: without a backward they all have the same order."""
    stage, rank, micro_batch = _grid(shape)
    return Timing((stage + micro_batch) * shape.topology.sharing + rank, _NOTHING)


def _fill_length(shape: Shape) -> int:
    topology = shape.topology
    return topology.sharing * (shape.micro_batches + topology.stages - 2) + topology.ranks[-1] + 1


def _cyclic(name: str, merged: int) -> Schedule:
    """Cycles of all forwards, then all backwards; ``merged`` of the 2S stages share a cycle with their neighbour."""

    def timing(shape: Shape) -> Timing:
        if not shape.training:
            return _fill(shape)
        stage, rank, micro_batch = _grid(shape)
        sharing = shape.topology.sharing
        cycle = sharing * (1 + shape.backward_ticks)
        forward = (micro_batch + stage) * cycle + rank
        # Later stages of an IPU go first, so that the first stage's backward ends the last cycle.
        offset = sharing + (sharing - rank) * shape.backward_ticks - 1 - shape.tail
        backward = (micro_batch + 2 * shape.topology.stages - 1 - merged - stage) * cycle + offset
        return Timing(forward, backward)

    def length(shape: Shape) -> int:
        if not shape.training:
            return _fill_length(shape)
        cycles = shape.micro_batches + 2 * shape.topology.stages - 1 - merged
        return cycles * shape.topology.sharing * (1 + shape.backward_ticks)

    return Schedule(name, timing, length)


def _interleaved(shape: Shape) -> Timing:
    if not shape.training:
        return _fill(shape)
    stage, _, micro_batch = _grid(shape)
    beat = shape.backward_ticks
    forward = (2 * micro_batch + stage) * beat
    backward = (2 * micro_batch + 2 * shape.topology.stages - 1 - stage) * beat + beat - 1
    return Timing(forward, backward)


def _interleaved_length(shape: Shape) -> int:
    if not shape.training:
        return _fill_length(shape)
    return 2 * (shape.micro_batches + shape.topology.stages - 1) * shape.backward_ticks


def _sequential(shape: Shape) -> Timing:
    stage, _, micro_batch = _grid(shape)
    stages = shape.topology.stages
    start = micro_batch * shape.slots_per_micro_batch
    backward = start + stages + (stages - 1 - stage) * shape.backward_ticks
    return Timing(start + stage, backward if shape.training else _NOTHING)


SCHEDULES: Dict[str, Schedule] = {
    row.name: row
    for row in (
        Schedule("sequential", _sequential, lambda shape: shape.micro_batches * shape.slots_per_micro_batch),
        _cyclic("grouped", merged=0),
        Schedule("interleaved", _interleaved, _interleaved_length, shares_devices=False),
        _cyclic("popart", merged=1),
    )
}


def schedule(name: str) -> Schedule:
    """The schedule of that name, in any case."""
    try:
        return SCHEDULES[name.lower()]
    except KeyError:
        raise ScheduleError(f"schedule {name!r} does not exist: use one of {', '.join(SCHEDULES)}") from None
