"""``poptorch.testing``: comparison of the results of two models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def allclose(expected: Any, actual: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether two tensors, or two nests of containers of the same structure, are close element by element.

    Tensors of different types are compared in the wider one; a different structure or shape is not close.
    """
    if isinstance(expected, torch.Tensor) and isinstance(actual, torch.Tensor):
        if expected.shape != actual.shape:
            return False
        dtype = torch.promote_types(expected.dtype, actual.dtype)
        return torch.allclose(expected.to(dtype), actual.to(dtype), rtol=rtol, atol=atol, equal_nan=equal_nan)
    if isinstance(expected, Mapping):
        return (
            isinstance(actual, Mapping)
            and expected.keys() == actual.keys()
            and all(allclose(expected[key], actual[key], rtol, atol, equal_nan) for key in expected)
        )
    if isinstance(expected, (list, tuple)):
        return (
            isinstance(actual, (list, tuple))
            and len(expected) == len(actual)
            and all(allclose(mine, theirs, rtol, atol, equal_nan) for mine, theirs in zip(expected, actual))
        )
    if isinstance(expected, (int, float)) and isinstance(actual, (int, float)):
        return allclose(torch.tensor(expected), torch.tensor(actual), rtol, atol, equal_nan)
    return bool(expected == actual)
