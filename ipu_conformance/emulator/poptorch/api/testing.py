"""``poptorch.testing``: comparison of the results of two models."""

from __future__ import annotations

from typing import Any

import torch


def allclose(ref: Any, other: Any) -> bool:
    """Whether two tensors, or two nests of lists and tuples of the same structure, are close element by element.

    How close is what ``torch.allclose`` says without arguments; a different structure or shape is not close.
    """
    if isinstance(ref, torch.Tensor) and isinstance(other, torch.Tensor):
        return ref.shape == other.shape and ref.dtype == other.dtype and torch.allclose(other, ref)
    if isinstance(ref, (list, tuple)):
        kind = tuple if isinstance(ref, tuple) else list
        alike = isinstance(other, kind) and len(ref) == len(other)
        return alike and all(allclose(mine, theirs) for mine, theirs in zip(ref, other))
    return bool(ref == other)
