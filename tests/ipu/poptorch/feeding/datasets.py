"""Datasets for the loader's cases: importable, so that a worker process can be given them."""

from __future__ import annotations

import os
from typing import Any, Iterator, Tuple

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


class Batches:
    """An iterable of ``count`` tensors [i, i]."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        return iter([torch.full((2,), i) for i in range(self.count)])


class Rows(Batches):
    """An iterable of tensors of 1, 2, 3, … rows, which count on: [0], [1, 2], [3, 4, 5], …"""

    def __iter__(self) -> Iterator[Any]:
        begins = [i * (i + 1) // 2 for i in range(self.count)]
        return iter([torch.arange(begin, begin + i + 1) for i, begin in enumerate(begins)])


class Pairs(Batches):
    """An iterable of dictionaries of two tensors."""

    def __iter__(self) -> Iterator[Any]:
        return iter([{"x": torch.tensor([i]), "y": torch.tensor([-i, i])} for i in range(self.count)])


class Failing(Batches):
    """An iterable that gives one tensor and then raises ValueError."""

    def __iter__(self) -> Iterator[Any]:
        yield torch.zeros(2)
        raise ValueError("sample 1 cannot be read")


class Dying(Batches):
    """An iterable that gives one tensor, and whose process is then gone."""

    def __iter__(self) -> Iterator[Any]:
        import time

        yield torch.zeros(2)
        time.sleep(0.3)
        os._exit(3)


class Recording(Batches):
    """An iterable that creates a file for every element that it makes."""

    def __init__(self, count: int, folder: str) -> None:
        super().__init__(count)
        self.folder = folder

    def __iter__(self) -> Iterator[Any]:
        for i in range(self.count):
            open(os.path.join(self.folder, str(i)), "w").close()
            yield torch.full((2,), i)


def values(elements: Any) -> Tuple[Tuple[int, ...], ...]:
    """Each element's first tensor as a tuple of numbers."""
    firsts = (element[0] if isinstance(element, (list, tuple)) else element for element in elements)
    return tuple(tuple(first.tolist()) for first in firsts)
