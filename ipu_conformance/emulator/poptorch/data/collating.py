"""Batches of a batch sampler, each collated for itself and then joined to what one call of a model consumes."""

from __future__ import annotations

from typing import Any, Callable, List, Mapping, Sequence

import torch


class BatchesOf(torch.utils.data.Dataset):
    """A dataset by lists of indices: an element is a list of samples."""

    def __init__(self, dataset: Any) -> None:
        self.samples = dataset

    def __getitem__(self, indices: Sequence[int]) -> List[Any]:
        return [self.samples[index] for index in indices]

    def __len__(self) -> int:
        return len(self.samples)


class CollateEach:
    """Calls a collate function for each of several batches and joins what it returns."""

    def __init__(self, collate: Callable[[List[Any]], Any]) -> None:
        self.collate = collate

    def __call__(self, batches: Sequence[List[Any]]) -> Any:
        return joined([self.collate(batch) for batch in batches])


def joined(parts: Sequence[Any]) -> Any:
    """Collated batches one after the other: tensors along dimension 0, containers by what they hold."""
    first: Any = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, torch.Tensor):
        return torch.cat(list(parts)) if first.dim() else torch.stack(list(parts))
    if isinstance(first, Mapping):
        kind: Any = type(first)
        return kind({key: joined([part[key] for part in parts]) for key in first})
    if isinstance(first, (list, tuple)):
        if all(isinstance(item, (str, bytes)) for item in first):
            return type(first)(item for part in parts for item in part)
        columns = [joined(column) for column in zip(*parts)]
        return type(first)(*columns) if hasattr(first, "_fields") else type(first)(columns)
    raise TypeError(
        f"collate_fn returned {type(first).__name__}: batches of a batch_sampler are joined for one call of the model, "
        "which needs tensors, or lists, tuples and dictionaries of them"
    )
