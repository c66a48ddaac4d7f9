"""Operations that torch computes in 64 bits: the device has 32, to which every result is brought.

PopTorch gives every tensor of a model a type that the device has (``coerceToSupportedType`` in its public sources).
Here integers keep the type that torch's kernels ask for as indices, and hold what 32 bits can.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from ipu_conformance.emulator import faults

aten = torch.ops.aten

_LEAVING = frozenset({
    aten.add, aten.add_, aten.sub, aten.sub_, aten.rsub, aten.mul, aten.mul_, aten.neg, aten.neg_, aten.abs, aten.abs_,
    aten.square, aten.square_, aten.pow, aten.pow_, aten.sum, aten.prod, aten.cumsum, aten.cumprod, aten.matmul,
    aten.mm, aten.bmm, aten.mv, aten.dot, aten.outer, aten.linear, aten.einsum, aten.addmm, aten.baddbmm, aten.addcmul,
    aten.floor_divide, aten.bitwise_left_shift, aten.__lshift__, aten.__ilshift__, aten.index_add, aten.index_add_,
    aten.scatter_add, aten.scatter_add_, aten.full, aten.full_like, aten.fill, aten.fill_, aten.trace, aten.diff,
})  # fmt: skip
"""Operations whose results may lie outside the range of 32 bits where their operands do not."""


def is_wide(node: Node) -> bool:
    """Whether the result of an operation may hold more than 32 bits."""
    packet = getattr(node.target, "overloadpacket", None)
    if packet is None or getattr(node.target, "is_view", False):
        return False
    kinds = {value.dtype for value in pytree.tree_leaves(node.meta.get("val")) if isinstance(value, torch.Tensor)}
    return torch.float64 in kinds or (torch.int64 in kinds and packet in _LEAVING)


class Narrowed:
    """An operation whose results hold what 32 bits can; their types stay."""

    def __init__(self, operation: Any, *, writes: bool) -> None:
        self.operation = operation
        self.writes = writes
        """Whether the result is an operand that was written into."""
        self.__name__ = str(operation)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return pytree.tree_map_only(torch.Tensor, self._narrowed, self.operation(*args, **kwargs))

    def _narrowed(self, value: torch.Tensor) -> torch.Tensor:
        held = in_32_bits(value)
        return value.copy_(held) if self.writes and held is not value else held


def in_32_bits(value: torch.Tensor) -> torch.Tensor:
    """A tensor of 64 bits with what the device holds of it: the low half of integers, the nearest float32."""
    if value.dtype == torch.int64:
        return faults.at("numerics.narrow", value.to(torch.int32).to(torch.int64), exact=value)
    if value.dtype == torch.float64:
        return faults.at("numerics.narrow", value.to(torch.float32).to(torch.float64), exact=value)
    return value
