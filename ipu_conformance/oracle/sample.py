"""A sample is one random call of an op; a chooser makes its choices, from a seed or from a property test's data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence, Tuple, TypeVar

import numpy as np

T = TypeVar("T")
MARGIN = 1 / 16
"""How far values stay from kinks: far above every step of a central difference, and exact in every number format."""


@dataclass(frozen=True)
class Sample:
    """Inputs and attributes for one call of an op; all that a witness or a device is given."""

    inputs: Tuple[np.ndarray, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def rounded_to(self, dtype: str) -> Sample:
        """The same sample with its floating-point inputs rounded to ``dtype`` (and held in float64 again)."""
        return Sample(tuple(round_to(dtype, value) for value in self.inputs), self.attributes)


def round_to(dtype: str, value: np.ndarray) -> np.ndarray:
    """``value`` rounded to ``dtype`` if it is floating point, otherwise as it is."""
    if value.dtype.kind != "f":
        return value
    if dtype == "bfloat16":  # the upper half of a float32, rounded to nearest even
        bits = np.ascontiguousarray(value, np.float32).view(np.uint32)  # at least one axis
        odd = (bits >> np.uint32(16)) & np.uint32(1)
        kept = (bits + np.uint32(0x7FFF) + odd) & np.uint32(0xFFFF0000)
        return kept.view(np.float32).astype(np.float64).reshape(np.shape(value))
    return value.astype(dtype).astype(np.float64)


class Chooser(ABC):
    """Makes the choices of a sample; everything follows from ``integer``, so that a property test can shrink it."""

    @abstractmethod
    def integer(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``, both included."""

    def choice(self, options: Sequence[T]) -> T:
        """One of ``options``; the first is the simplest."""
        return options[self.integer(0, len(options) - 1)]

    def boolean(self) -> bool:
        """True or False."""
        return bool(self.integer(0, 1))

    def shape(self, rank_low: int = 1, rank_high: int = 3, largest: int = 5) -> Tuple[int, ...]:
        """A shape of ``rank_low`` to ``rank_high`` axes of 1 to ``largest`` elements."""
        return tuple(self.integer(1, largest) for _ in range(self.integer(rank_low, rank_high)))

    def generator(self) -> np.random.Generator:
        """A source of bulk values whose seed is one choice."""
        return np.random.default_rng(self.integer(0, 2**32 - 1))

    def array(
        self, shape: Sequence[int], low: float = -2.0, high: float = 2.0, avoid: Sequence[float] = ()
    ) -> np.ndarray:
        """Float64 values between ``low`` and ``high``, none nearer than ``MARGIN`` to a value in ``avoid``."""
        values = self.generator().uniform(low, high, tuple(shape))
        for kink in avoid:
            near = np.abs(values - kink) < MARGIN
            values = np.where(near, kink + np.where(values < kink, -MARGIN, MARGIN), values)
        return values

    def distinct(self, shape: Sequence[int], low: float = -3.0, high: float = 3.0) -> np.ndarray:
        """Float64 values in random order, each at least half a step of an even grid from the next."""
        generator, size = self.generator(), int(np.prod(shape))
        grid = (generator.permutation(size) + generator.uniform(0.25, 0.75, size)) / max(size, 1)
        return (low + (high - low) * grid).reshape(tuple(shape))

    def integers(self, shape: Sequence[int], low: int, high: int) -> np.ndarray:
        """Int64 values from ``low`` to ``high``, both included."""
        return self.generator().integers(low, high, tuple(shape), endpoint=True)


class SeededChooser(Chooser):
    """Choices that follow from a seed."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def integer(self, low: int, high: int) -> int:
        return int(self._generator.integers(low, high, endpoint=True))
