"""Sliding windows over the spatial axes of (batch, channel, *space): what convolution and pooling are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator, Sequence, Tuple, Union

import numpy as np

from ipu_conformance.oracle.op import Array, OracleError

Pairs = Tuple[Tuple[int, int], ...]
PerAxis = Union[int, Sequence[int]]
Padding = Union[str, int, Sequence[Any]]


def per_axis(value: PerAxis, rank: int) -> Tuple[int, ...]:
    """One value per spatial axis, from one value for all or from a sequence."""
    return (value,) * rank if isinstance(value, int) else tuple(value)


def space(index: Sequence[Any]) -> Any:
    """The index that takes ``index`` on the spatial axes and everything on those before."""
    return (..., *index)


@dataclass(frozen=True)
class Window:
    """The geometry of windows of ``kernel`` taps over an input of ``size``, per spatial axis.

    ``padding`` is a (before, after) pair per axis; ``places`` is the number of windows.
    """

    size: Tuple[int, ...]
    kernel: Tuple[int, ...]
    stride: Tuple[int, ...]
    padding: Pairs
    dilation: Tuple[int, ...]
    places: Tuple[int, ...]

    def offsets(self) -> Iterator[Tuple[slice, ...]]:
        """For every tap of the kernel, the slices of the padded input that it meets, one element per place."""
        for tap in np.ndindex(*self.kernel):
            yield tuple(
                slice(t * d, t * d + s * n, s) for t, d, s, n in zip(tap, self.dilation, self.stride, self.places)
            )

    def padded_size(self) -> Tuple[int, ...]:
        """The size with padding, long enough for the last window even where rounding up lets it hang over."""
        spans = (d * (k - 1) + s * n for d, k, s, n in zip(self.dilation, self.kernel, self.stride, self.places))
        return tuple(max(span, low + n + high) for span, n, (low, high) in zip(spans, self.size, self.padding))

    def unfold(self, x: Array, fill: float = 0.0) -> Array:
        """The windows of ``x`` as (batch, channel, taps, *places); taps in the padding see ``fill``."""
        padded = np.full(x.shape[:2] + self.padded_size(), fill)
        padded[self._inside()] = x
        return np.stack([padded[space(tap)] for tap in self.offsets()], axis=2)

    def fold(self, windows: Array) -> Array:
        """The adjoint of ``unfold``: every input element gets the sum of what the windows hold for it."""
        padded = np.zeros(windows.shape[:2] + self.padded_size())
        for tap, values in zip(self.offsets(), np.moveaxis(windows, 2, 0)):
            padded[space(tap)] += values
        return padded[self._inside()]

    def _inside(self) -> Any:
        return space([slice(low, low + n) for n, (low, _) in zip(self.size, self.padding)])


def window(
    size: Sequence[int],
    kernel: PerAxis,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
) -> Window:
    """The windows for an input of ``size``.

    ``padding`` is a number for all sides, one per axis, a (before, after) pair per axis, "VALID" (none), or "SAME":
    as many places as ``ceil(size / stride)``, with the odd element of padding after. ``ceil_mode`` rounds the number
    of places up instead of down, but never to a window that starts beyond the input and the padding before it.
    """
    rank = len(size)
    kernel, stride, dilation = per_axis(kernel, rank), per_axis(stride, rank), per_axis(dilation, rank)
    reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation))
    pairs = _pairs(padding, size, reach, stride)
    places = []
    for n, (low, high), span, step in zip(size, pairs, reach, stride):
        free = n + low + high - span
        if free < 0:
            raise OracleError(f"a window of {span} does not fit into {n} + {low} + {high} elements; use a smaller one")
        count = (-(-free // step) if ceil_mode else free // step) + 1
        places.append(count - 1 if ceil_mode and (count - 1) * step >= n + low else count)
    return Window(tuple(size), kernel, stride, pairs, dilation, tuple(places))


def _pairs(padding: Padding, size: Sequence[int], reach: Sequence[int], stride: Sequence[int]) -> Pairs:
    if padding == "VALID":
        padding = 0
    if padding == "SAME":
        totals = [max((-(-n // s) - 1) * s + span - n, 0) for n, span, s in zip(size, reach, stride)]
        return tuple((total // 2, total - total // 2) for total in totals)
    if isinstance(padding, str):
        raise OracleError(f"padding {padding!r} is unknown; use 'SAME', 'VALID' or numbers")
    sides = (padding,) * len(size) if isinstance(padding, int) else padding
    return tuple((side, side) if isinstance(side, int) else (int(side[0]), int(side[1])) for side in sides)
