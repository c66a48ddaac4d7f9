"""Who makes up the samples of a call: one structure for every micro-batch, each with values of its own."""

from __future__ import annotations

from typing import Tuple

import numpy as np

from ipu_conformance.oracle.sample import Chooser, SeededChooser


class MicroBatch(SeededChooser):
    """The structure of one seed with the values of a micro-batch of its own."""

    def __init__(self, seed: int, number: int) -> None:
        super().__init__(seed)
        self._number = number

    def generator(self) -> np.random.Generator:
        return np.random.default_rng([self.integer(0, 2**32 - 1), self._number])


ODD, EVEN = 131, 22
"""Lengths of a stretched last axis: longer than vectors and no multiple of four, the odd one longer than 128."""
WIDE = 67
"""The length of the first axis beside an even last one."""
DEEP = 5
"""The rank of a call with many axes."""


class Stretched(MicroBatch):
    """The same structure with long axes wherever a shape is drawn whole and they are not one; ``deep`` adds axes."""

    def __init__(self, seed: int, last: int, number: int, deep: bool = False) -> None:
        super().__init__(seed, number)
        self._last = last
        self._deep = deep

    def shape(self, rank_low: int = 1, rank_high: int = 3, largest: int = 5) -> Tuple[int, ...]:
        *others, last = super().shape(rank_low, rank_high, largest) or (1,)
        if others and others[0] > 1 and self._last == EVEN:
            others[0] = WIDE
        if self._deep and rank_low < rank_high:
            others[1:1] = (DEEP - 1 - len(others)) * (1,)
        return (*others, last if last == 1 else self._last)


class Empty(MicroBatch):
    """The same structure with no element along the first axis wherever a shape is drawn whole."""

    def shape(self, rank_low: int = 1, rank_high: int = 3, largest: int = 5) -> Tuple[int, ...]:
        _, *others = super().shape(max(rank_low, 1), rank_high, largest)
        return (0, *others)


class Least(Chooser):
    """Every choice is its first, every size its least; values still differ from one micro-batch to the next."""

    def __init__(self, number: int) -> None:
        self._number = number

    def integer(self, low: int, high: int) -> int:
        return low

    def generator(self) -> np.random.Generator:
        return np.random.default_rng([17, self._number])
