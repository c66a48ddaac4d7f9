"""Slices whose start is known on the device only: ``x[start : start + 5]``, as long as their size is a constant."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ipu_conformance.emulator.poptorch.ops import computed
from ipu_conformance.emulator.poptorch.refusals import ops as refusals

_ADD = frozenset((torch.add, torch.Tensor.add, torch.Tensor.__add__, torch.Tensor.__radd__))
_SUBTRACT = frozenset((torch.sub, torch.Tensor.sub, torch.Tensor.__sub__))


class Offsets:
    """Which tensors of one element are another plus a constant."""

    def __init__(self) -> None:
        self._by_id: Dict[int, Tuple[torch.Tensor, torch.Tensor, int]] = {}

    def note(self, function: Callable[..., Any], args: Tuple[Any, ...], result: Any) -> None:
        """Remember what a call made, if it added a constant to a tensor of one element."""
        if (function not in _ADD and function not in _SUBTRACT) or len(args) != 2:
            return
        base, constant = args if isinstance(args[0], torch.Tensor) else args[::-1]
        if isinstance(base, torch.Tensor) and isinstance(constant, int) and base.numel() == 1:
            root, offset = self.root(base)
            self._by_id[id(result)] = result, root, offset + (constant if function in _ADD else -constant)

    def root(self, tensor: torch.Tensor) -> Tuple[torch.Tensor, int]:
        """The tensor that another was made of by adding constants, and their sum."""
        _, base, offset = self._by_id.get(id(tensor), (tensor, tensor, 0))
        return base, offset

    def size(self, part: slice) -> int:
        """The size of a slice, which must be the same for every start."""
        (start, first), (stop, last) = self._end(part.start), self._end(part.stop)
        refusals.COMPUTED_SIZE(start=start, stop=stop)
        return last - first

    def _end(self, end: Any) -> Tuple[Optional[torch.Tensor], int]:
        return self.root(end) if isinstance(end, torch.Tensor) else (None, end or 0)


def is_on_the_device(index: Any) -> bool:
    """Whether an index has a slice that begins or ends at a tensor."""
    return any(_is_computed(part) for part in _parts(index))


def sliced(tensor: torch.Tensor, index: Any, offsets: Offsets) -> torch.Tensor:
    """``tensor[index]``, where slices may begin at tensors."""
    rest: List[Any] = []
    for part, dim in zip(_parts(index), _dimensions(_parts(index), tensor.dim())):
        if _is_computed(part):
            assert dim is not None
            tensor = computed.dynamic_slice(tensor, dim, part.start, offsets.size(part), part.step or 1)
            part = slice(None)
        rest.append(part)
    return tensor[tuple(rest)]


def _parts(index: Any) -> Tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _is_computed(part: Any) -> bool:
    """Whether a slice begins or ends at a value that only the device knows; torch knows those of constants."""
    ends = (part.start, part.stop) if isinstance(part, slice) else ()
    return any(isinstance(end, FakeTensor) and end.constant is None for end in ends)


def _dimensions(parts: Tuple[Any, ...], dimensions: int) -> List[Optional[int]]:
    """The dimension that each part of an index is about; None for parts that take none."""
    taking = sum(part is not None and part is not Ellipsis for part in parts)
    found: List[Optional[int]] = []
    dim = 0
    for part in parts:
        found.append(None if part is None or part is Ellipsis else dim)
        dim += dimensions - taking if part is Ellipsis else part is not None
    return found
