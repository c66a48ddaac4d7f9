"""Operations that torch does not compute in float16 on a CPU: they run in float32, and their results are rounded."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

aten = torch.ops.aten

WITHOUT_HALF = frozenset({
    aten.avg_pool3d.default, aten.multi_margin_loss.default, aten.multilabel_margin_loss.default, aten.cdist.default,
})  # fmt: skip
"""The operations without a kernel for float16 that a device has."""


class Widened:
    """An operation that computes float16 in float32."""

    def __init__(self, operation: Any) -> None:
        self.operation = operation
        self.__name__ = str(operation)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        if not any(isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float16 for leaf in leaves):
            return self.operation(*args, **kwargs)
        wide = pytree.tree_map_only(torch.Tensor, _wide, (args, kwargs))
        return pytree.tree_map_only(torch.Tensor, lambda value: value.half(), self.operation(*wide[0], **wide[1]))


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value.float() if value.dtype == torch.float16 else value
