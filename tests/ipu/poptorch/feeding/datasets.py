"""Datasets for the loader's cases: importable, so that a worker process can be given them."""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Iterator, List, Tuple

from ..lazily import torch


def numbers(count: int) -> Any:
    """A dataset whose sample ``i`` is (i, -i)."""
    values = torch.arange(count)
    return torch.utils.data.TensorDataset(values, -values)


def stream(count: int, *, split: bool = False) -> Any:
    """An iterable dataset of 0 … count-1; ``split`` deals them out to the loader's workers."""

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self) -> Iterator[Any]:
            info = torch.utils.data.get_worker_info() if split else None
            first, step = (info.id, info.num_workers) if info else (0, 1)
            return iter(torch.arange(first, count, step))

    return Stream()


def twos(i: int) -> Any:
    """A tensor [i, i]."""
    return torch.full((2,), i)


def rows(i: int) -> Any:
    """A tensor of one row more than the one before, which counts on: [0], [1, 2], [3, 4, 5], …"""
    return torch.arange(i * (i + 1) // 2, (i + 1) * (i + 2) // 2)


def pairs(i: int) -> Any:
    """A dictionary of two tensors."""
    return {"x": torch.tensor([i]), "y": torch.tensor([-i, i])}


def failing(i: int) -> Any:
    """One tensor, and then a ValueError."""
    if i:
        raise ValueError("sample 1 cannot be read")
    return torch.zeros(2)


def dying(i: int) -> Any:
    """One tensor, and then the process is gone."""
    if i:
        time.sleep(0.3)
        os._exit(3)
    return torch.zeros(2)


class Elements:
    """An iterable of ``make(0)``, ``make(1)`` and so on."""

    def __init__(self, count: int, make: Callable[[int], Any] = twos) -> None:
        self.count, self.make = count, make

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        return map(self.make, range(self.count))


def values(elements: Any) -> Tuple[Tuple[int, ...], ...]:
    """Each element's first tensor as a tuple of numbers."""
    firsts = (element[0] if isinstance(element, (list, tuple)) else element for element in elements)
    return tuple(tuple(first.tolist()) for first in firsts)


def ranges(size: int, *, stop: int, first: int = 0) -> List[range]:
    """The numbers from ``first`` to ``stop`` - 1 in ranges of one size; the last holds what is left."""
    return [range(begin, min(begin + size, stop)) for begin in range(first, stop, size)]
