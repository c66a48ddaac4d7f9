"""From a combined batch to the inputs of slots, and from the outputs of slots to what a vendor's API returns.

Everything is a position: which micro-batch of the combined batch a slot is fed with, and which slots' outputs make an
entry of the result. Front ends apply positions to their own tensors; ``deal`` and ``join`` apply them to NumPy arrays.

All three vendors feed micro-batches in one order, the replica fastest: [device iteration, accumulation, replica]. For
TensorFlow that is element ``i * replicas + replica`` of iteration ``i``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.emulator import faults
from ipu_conformance.errors import ConformanceError

CONSECUTIVE, ORTHOGONAL = "consecutive", "orthogonal"


class StreamError(ConformanceError):
    """A batch or an output mode does not fit the numbers of iterations, accumulation and replicas."""


@dataclass(frozen=True)
class Layout:
    """The factors of a combined batch.

    ``grouping`` replicas share their input: neighbours when ``grouped_by`` is consecutive, every so many replicas when
    it is orthogonal.
    """

    device_iterations: int = 1
    accumulation: int = 1
    replicas: int = 1
    grouping: int = 1
    grouped_by: str = CONSECUTIVE

    def __post_init__(self) -> None:
        if min(self.device_iterations, self.accumulation, self.replicas, self.grouping) < 1:
            raise StreamError(f"{self} was given: every factor is 1 or more")
        if self.replicas % self.grouping:
            raise StreamError(
                f"groups of {self.grouping} replicas were given for {self.replicas} replicas: use a divisor of them"
            )
        if self.grouped_by not in (CONSECUTIVE, ORTHOGONAL):
            raise StreamError(f"grouping {self.grouped_by!r} was given: use {CONSECUTIVE!r} or {ORTHOGONAL!r}")

    @property
    def micro_batches(self) -> int:
        """Micro-batches of one replica."""
        return self.device_iterations * self.accumulation

    @property
    def factors(self) -> Tuple[int, int, int]:
        """Device iterations, accumulation and replicas: the order of slots."""
        return self.device_iterations, self.accumulation, self.replicas

    @property
    def inputs(self) -> int:
        """Micro-batches of a combined batch."""
        return self.micro_batches * (self.replicas // self.grouping)

    def micro_batch_size(self, dim: Optional[int]) -> int:
        """The size of a micro-batch when dimension 0 of the combined batch is ``dim``, None for a scalar."""
        size = 1 if dim is None else dim
        if size < 1 or size % self.inputs:
            raise StreamError(
                f"Invalid batch dimension: {size} is not a multiple of {self.inputs}, which is device iterations "
                f"({self.device_iterations}) x gradient accumulation ({self.accumulation}) x replicas "
                f"({self.replicas}) / input group size ({self.grouping})"
            )
        return size // self.inputs

    def positions(self) -> np.ndarray:
        """For [replica, micro-batch of that replica] the micro-batch of the combined batch that is fed to it."""
        groups = self.replicas // self.grouping
        replica = np.arange(self.replicas)
        group = replica // self.grouping if self.grouped_by == CONSECUTIVE else replica % groups
        positions = (np.arange(self.micro_batches)[:, None] * groups + group).reshape(self.factors)
        positions = faults.at("streams.split", positions, replicas=self.replicas)
        return positions.reshape(self.micro_batches, self.replicas).T


class Source(NamedTuple):
    """The slot that an output comes from."""

    replica: int
    micro_batch: int


@dataclass(frozen=True)
class Selection:
    """The entries of a result in order; each is the sum of the outputs of its slots, one slot in most modes."""

    entries: Tuple[Tuple[Source, ...], ...]

    @property
    def multiplier(self) -> int:
        """The factor by which dimension 0 of an output grows."""
        return len(self.entries)

    def arrange(self, outputs: Sequence[Sequence[Any]]) -> List[Any]:
        """One value per entry from ``outputs[replica][micro_batch]``, of any type that adds."""
        arranged = []
        for entry in self.entries:
            value = outputs[entry[0].replica][entry[0].micro_batch]
            for source in entry[1:]:
                value = value + outputs[source.replica][source.micro_batch]
            arranged.append(value)
        return arranged


def _slot_numbers(layout: Layout) -> np.ndarray:
    """The number of the slot whose output is returned for [micro-batch, replica]: its own, on a right device."""
    numbers = np.arange(layout.micro_batches * layout.replicas).reshape(layout.factors)
    numbers = faults.at("streams.join", numbers, replicas=layout.replicas)
    return numbers.reshape(layout.micro_batches, layout.replicas)


def _selection(layout: Layout, numbers: Iterable[Iterable[int]]) -> Selection:
    return Selection(
        tuple(
            tuple(Source(int(number) % layout.replicas, int(number) // layout.replicas) for number in entry)
            for entry in numbers
        )
    )


def select_all(layout: Layout) -> Selection:
    """Every output in the order of slots: PopTorch All, Paddle's fetches, an outfeed in mode ALL."""
    return _selection(layout, _slot_numbers(layout).reshape(-1, 1))


def select_every(layout: Layout, period: int) -> Selection:
    """PopTorch EveryN: from each replica the micro-batches ``period - 1``, ``2 * period - 1``, …"""
    if period < 1 or layout.micro_batches % period:
        raise StreamError(
            f"an output period of {period} was given for {layout.micro_batches} micro-batches (device iterations x "
            "gradient accumulation): use a divisor of them"
        )
    return _selection(layout, _slot_numbers(layout)[period - 1 :: period].reshape(-1, 1))


def select_final(layout: Layout) -> Selection:
    """PopTorch Final, an outfeed in mode LAST: the last micro-batch of each replica."""
    return select_every(layout, layout.micro_batches)


def select_sum(layout: Layout) -> Selection:
    """PopTorch Sum: the sum of each replica's outputs; replicas stay separate."""
    return _selection(layout, _slot_numbers(layout).T)


def select_accumulated(layout: Layout) -> Selection:
    """TensorFlow's accumulated outfeed: one sum per device iteration and replica."""
    numbers = _slot_numbers(layout).reshape(layout.factors)
    return _selection(layout, numbers.transpose(0, 2, 1).reshape(-1, layout.accumulation))


def poptorch_selection(layout: Layout, mode: str, period: int = 1) -> Selection:
    """The selection of a PopTorch output mode: All, EveryN, Final or Sum."""
    modes = {"all": select_all, "final": select_final, "sum": select_sum}
    if mode.lower() == "everyn":
        return select_every(layout, period)
    if mode.lower() not in modes:
        raise StreamError(f"output mode {mode!r} was given: use All, EveryN, Final or Sum")
    return modes[mode.lower()](layout)


# Shapes


def poptorch_shape(selection: Selection, shape: Sequence[int]) -> Tuple[int, ...]:
    """Dimension 0 times the multiplier; a 0-d output stays 0-d if that is 1 and else is a vector."""
    if not shape:
        return () if selection.multiplier == 1 else (selection.multiplier,)
    return (shape[0] * selection.multiplier, *shape[1:])


def paddle_shape(layout: Layout, shape: Sequence[int], *, replicated: bool, accumulating: bool) -> Tuple[int, ...]:
    """The shape that Paddle reports: replicas and accumulation when enabled, batches per step when more than one.

    The data below it stays in the order of slots, so the leading dimensions are not those of an array of
    [replica, accumulation, batch] when more than one of them is above 1.
    """
    for name, factor, enabled in (
        ("replicas", layout.replicas, replicated),
        ("accumulated micro-batches", layout.accumulation, accumulating),
    ):
        if factor > 1 and not enabled:
            raise StreamError(f"{factor} {name} were given with the option off: switch it on or use 1")
    leading: Tuple[int, ...] = ()
    if replicated:
        leading += (layout.replicas,)
    if accumulating:
        leading += (layout.accumulation,)
    if layout.device_iterations > 1:
        leading += (layout.device_iterations,)
    return leading + (tuple(shape) or (1,))


def paddle_feed_size(layout: Layout, shape: Sequence[int], micro_shape: Sequence[int]) -> int:
    """How many leading dimensions of a feed hold its micro-batches: 1 for [n * mb, …], 2 for [n, mb, …]."""
    count, (size, *rest) = layout.inputs, micro_shape
    if tuple(shape) == (count * size, *rest):
        return 1
    if tuple(shape) == (count, size, *rest):
        return 2
    raise StreamError(
        f"Invalid batch dimension: a feed of shape {tuple(shape)} was given for {count} micro-batches of shape "
        f"{tuple(micro_shape)}: use {(count * size, *rest)} or {(count, size, *rest)}"
    )


# NumPy


def deal(batch: np.ndarray, layout: Layout) -> List[List[np.ndarray]]:
    """The micro-batches of a combined batch, as views, by [replica][micro-batch]."""
    batch = np.asarray(batch)
    size = layout.micro_batch_size(batch.shape[0] if batch.ndim else None)
    if not batch.ndim:
        batch = batch.reshape(1)
    return [[batch[position * size : (position + 1) * size] for position in fed] for fed in layout.positions().tolist()]


def join(outputs: Sequence[Sequence[np.ndarray]], selection: Selection) -> np.ndarray:
    """PopTorch's result: the selected outputs one after the other along dimension 0."""
    arranged = np.stack([np.asarray(value) for value in selection.arrange(outputs)])
    return arranged.reshape(poptorch_shape(selection, arranged.shape[1:]))
