"""Pooling: the largest or the mean value of every window, and of the bins of adaptive and global pooling."""

from __future__ import annotations

from itertools import product
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle.op import OPS, Array, Op, Term, exact
from ipu_conformance.oracle.ops.layers.window import Padding, PerAxis, Window, per_axis, space, window
from ipu_conformance.oracle.sample import Chooser, Sample


def _view(
    x: Array,
    kernel: PerAxis,
    stride: Optional[PerAxis] = None,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
) -> Window:
    """The windows of a pooling; the stride is the kernel's size unless given."""
    return window(x.shape[2:], kernel, kernel if stride is None else stride, padding, dilation, ceil_mode)


def max_pool(x: Array, **geometry: Any) -> Array:
    """The largest value of every window; padding never wins.

    Attributes: kernel, stride (the kernel), padding (0), dilation (1), ceil_mode (False), as ``window`` has them.
    """
    return _view(x, **geometry).unfold(x, fill=-np.inf).max(axis=2)


def max_pool_vjp(g: Array, x: Array, **geometry: Any) -> Sequence[Array]:
    """The gradient goes to the first of the largest values of a window."""
    view = _view(x, **geometry)
    windows = view.unfold(x, fill=-np.inf)
    winner = np.expand_dims(windows.argmax(axis=2), 2)
    taken = np.zeros_like(windows)
    np.put_along_axis(taken, winner, np.expand_dims(g, 2), axis=2)
    return (view.fold(taken),)


def avg_pool(x: Array, *, count_include_pad: bool = True, **geometry: Any) -> Array:
    """The mean of every window.

    It divides by the elements of the window that lie in the input, and with ``count_include_pad`` also by those in the
    padding; what a window that ``ceil_mode`` added has beyond the padding never counts. Attributes as for ``max_pool``.
    """
    view = _view(x, **geometry)
    return view.unfold(x).sum(axis=2) / _divisor(view, count_include_pad)


def avg_pool_vjp(g: Array, x: Array, *, count_include_pad: bool = True, **geometry: Any) -> Sequence[Array]:
    """Every element of a window gets an equal share."""
    view = _view(x, **geometry)
    share = np.expand_dims(g / _divisor(view, count_include_pad), 2)
    return (view.fold(np.repeat(share, int(np.prod(view.kernel)), axis=2)),)


def _divisor(view: Window, count_include_pad: bool) -> Array:
    if not count_include_pad:
        return view.unfold(np.ones((1, 1, *view.size))).sum(axis=2)
    size = tuple(low + n + high for n, (low, high) in zip(view.size, view.padding))
    bare = Window(size, view.kernel, view.stride, ((0, 0),) * len(size), view.dilation, view.places)
    return bare.unfold(np.ones((1, 1, *size))).sum(axis=2)


def _avg_pool_error(y: Array, x: Array, **attributes: Any) -> List[List[Term]]:
    taps = int(np.prod(per_axis(attributes["kernel"], x.ndim - 2)))
    return [[Term(avg_pool(np.abs(x), **attributes), length=taps + 1, where="accumulate")]]


def _bins(size: Sequence[int], output_size: Sequence[int]) -> Iterator[Tuple[Tuple[int, ...], Tuple[Any, ...]]]:
    """The place and the slices of every bin: bin i of m covers floor(i n / m) to ceil((i + 1) n / m)."""
    per_axis_bins = [
        [(i, slice(i * n // m, -(-(i + 1) * n // m))) for i in range(m)] for n, m in zip(size, output_size)
    ]
    for bins in product(*per_axis_bins):
        yield tuple(place for place, _ in bins), tuple(span for _, span in bins)


def _adaptive(reduce: Callable[..., Array]) -> Callable[..., Array]:
    def forward(x: Array, *, output_size: PerAxis = 1) -> Array:
        size = per_axis(output_size, x.ndim - 2)
        y = np.empty(x.shape[:2] + size)
        for place, span in _bins(x.shape[2:], size):
            y[space(place)] = reduce(x[space(span)].reshape((*x.shape[:2], -1)), axis=2)
        return y

    return forward


adaptive_avg_pool = _adaptive(np.mean)
adaptive_max_pool = _adaptive(np.max)


def adaptive_avg_pool_vjp(g: Array, x: Array, *, output_size: PerAxis = 1) -> Sequence[Array]:
    """Every element of a bin gets an equal share; bins may overlap."""
    dx = np.zeros(x.shape)
    for place, span in _bins(x.shape[2:], g.shape[2:]):
        share = g[space(place)] / x[0, 0][span].size
        dx[space(span)] += share.reshape(share.shape + (1,) * len(span))
    return (dx,)


def adaptive_max_pool_vjp(g: Array, x: Array, *, output_size: PerAxis = 1) -> Sequence[Array]:
    """The gradient goes to the first of the largest values of a bin."""
    dx = np.zeros(x.shape)
    for place, span in _bins(x.shape[2:], g.shape[2:]):
        values = x[space(span)]
        flat = values.reshape((*x.shape[:2], -1))
        taken = np.zeros_like(flat)
        np.put_along_axis(taken, flat.argmax(axis=2)[..., None], g[space(place)][..., None], axis=2)
        dx[space(span)] += taken.reshape(values.shape)
    return (dx,)


def _adaptive_avg_error(y: Array, x: Array, **attributes: Any) -> List[List[Term]]:
    largest = max(x[0, 0][span].size for _, span in _bins(x.shape[2:], y.shape[2:]))
    return [[Term(adaptive_avg_pool(np.abs(x), **attributes), length=largest + 1, where="accumulate")]]


def _window_coverage(g: Array, x: Array, count_include_pad: bool = True, **geometry: Any) -> Array:
    """In how many windows each element of the input lies."""
    view = _view(x, **geometry)
    return view.fold(np.ones((1, 1, int(np.prod(view.kernel)), *view.places)))


def _bin_coverage(g: Array, x: Array, **_: Any) -> Array:
    """In how many bins each element of the input lies."""
    count = np.zeros(x.shape[2:])
    for _place, span in _bins(x.shape[2:], g.shape[2:]):
        count[span] += 1
    return count


def _vjp_error(vjp: Callable[..., Sequence[Array]], coverage: Callable[..., Array], shared: bool) -> Any:
    """Overlapping windows add up what they pass back; a mean's share is rounded once more when it is divided off."""

    def error(gradients: Sequence[Array], g: Array, x: Array, **attributes: Any) -> List[List[Term]]:
        length = int(coverage(g, x, **attributes).max(initial=1)) + shared
        if length == 1:
            return [[]]
        (size,) = vjp(np.abs(g), x, **attributes)
        return [[Term(size, length=length, where="accumulate")]]

    return error


def _draw_pool(chooser: Chooser) -> Sample:
    rank = chooser.choice((2, 1, 2, 1, 3))
    kernel = tuple(chooser.integer(1, 3) for _ in range(rank))
    attributes: Any = {"kernel": kernel, "stride": kernel, "padding": 0, "ceil_mode": False}
    border = chooser.choice(("VALID", "SAME", "explicit"))
    if chooser.boolean():
        attributes["stride"] = tuple(chooser.integer(1, k) for k in kernel)
    if border == "explicit":
        # No window lies in the padding alone: padding is at most half the kernel.
        attributes["padding"] = tuple((chooser.integer(0, k // 2),) * 2 for k in kernel)
        attributes["stride"] = tuple(chooser.integer(1, 3) for _ in kernel)
        attributes["ceil_mode"] = chooser.boolean()
    else:
        attributes["padding"] = border
    size = tuple(k + chooser.integer(0, 4) for k in kernel)
    return Sample((chooser.distinct((chooser.integer(1, 2), chooser.integer(1, 3), *size)),), attributes)


def _draw_max_pool(chooser: Chooser) -> Sample:
    sample = _draw_pool(chooser)
    (x,) = sample.inputs
    kernel = sample.attributes["kernel"]
    dilation = tuple(chooser.integer(1, 2) for _ in kernel) if chooser.boolean() else (1,) * len(kernel)
    if any(d * (k - 1) >= n for d, k, n in zip(dilation, kernel, x.shape[2:])):
        return sample
    return Sample((x,), {**sample.attributes, "dilation": dilation})


def _draw_avg_pool(chooser: Chooser) -> Sample:
    sample = _draw_pool(chooser)
    return Sample(sample.inputs, {**sample.attributes, "count_include_pad": chooser.boolean()})


def _draw_adaptive(chooser: Chooser) -> Sample:
    size = tuple(chooser.integer(1, 7) for _ in range(chooser.choice((2, 1, 3))))
    output_size = tuple(chooser.integer(1, n) for n in size)
    x = chooser.distinct((chooser.integer(1, 2), chooser.integer(1, 2), *size))
    return Sample((x,), {"output_size": output_size})


def _draw_global(chooser: Chooser) -> Sample:
    return Sample((chooser.distinct(tuple(chooser.integer(1, 5) for _ in range(chooser.choice((4, 3, 5))))),))


for _name, _forward, _vjp, _error, _coverage, _draw in (
    ("max_pool", max_pool, max_pool_vjp, exact, _window_coverage, _draw_max_pool),
    ("avg_pool", avg_pool, avg_pool_vjp, _avg_pool_error, _window_coverage, _draw_avg_pool),
    ("adaptive_max_pool", adaptive_max_pool, adaptive_max_pool_vjp, exact, _bin_coverage, _draw_adaptive),
    ("adaptive_avg_pool", adaptive_avg_pool, adaptive_avg_pool_vjp, _adaptive_avg_error, _bin_coverage, _draw_adaptive),
    ("global_max_pool", adaptive_max_pool, adaptive_max_pool_vjp, exact, _bin_coverage, _draw_global),
    ("global_avg_pool", adaptive_avg_pool, adaptive_avg_pool_vjp, _adaptive_avg_error, _bin_coverage, _draw_global),
):
    _gradient_error = _vjp_error(_vjp, _coverage, shared=_error is not exact)
    OPS.add(Op(_name, "pooling", _forward, _error, _draw, _vjp, _gradient_error))
