"""Distances of arrays, and the norm by statistics that were gathered before."""

from __future__ import annotations

import math
from typing import Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle.ops.arithmetic.pointwise import broadcastable
from ipu_conformance.oracle.ops.tracked import Tracked, tracked, tracked_op
from ipu_conformance.oracle.sample import Chooser, Sample
from ipu_conformance.oracle.tolerance.ops import ULPS


def _power(x: Tracked, p: float) -> Tracked:
    """Numbers that are not negative, to a power."""
    if p == 0:
        return tracked(np.ones(x.shape))
    ulps = 0.0 if p == 1 else ULPS["sqrt"] if p == 0.5 else 0.5 if p == 2 else ULPS["pow"]
    return x.mapped(lambda value: value**p, lambda value: p * value ** (p - 1), ulps)


def _size(apart: Tracked) -> Tracked:
    return Tracked(np.abs(apart.value), apart.error)


def _dist(x: Tracked, y: Tracked, *, p: float) -> Sequence[Tracked]:
    size = _size(x - y)
    if math.isinf(p):
        return [Tracked(size.value.max(), size.error.max())]
    return [_power(_power(size, p).sum(), 1 / p)]


def _dist_pull(cotangents: Sequence[Tracked], x: Tracked, y: Tracked, *, p: float) -> Sequence[Optional[Tracked]]:
    (g,), apart = cotangents, x - y
    size, sign = _size(apart), np.sign(apart.value)
    if math.isinf(p):
        slope = tracked(sign * (size.value == size.value.max()))
    elif p == 1:
        slope = tracked(sign)
    else:
        slope = _power(size, p - 1) * sign / _power(_dist(x, y, p=p)[0], p - 1)
    gradient = slope * g
    return [_unbroadcast(gradient, x.shape), _unbroadcast(-gradient, y.shape)]


def _unbroadcast(gradient: Tracked, shape: Tuple[int, ...]) -> Tracked:
    """The sum over the axes along which an operand was repeated."""
    lead = len(gradient.shape) - len(shape)
    repeated = [lead + axis for axis, size in enumerate(shape) if size == 1 and gradient.shape[lead + axis] != 1]
    axes = (*range(lead), *repeated)
    return (gradient.sum(axis=axes) if axes else gradient).reshape(*shape)


def _draw_dist(chooser: Chooser) -> Sample:
    """Differences are not 0, and the largest is so by far."""
    one, other = broadcastable(chooser, 2)
    y = chooser.array(other, -0.25, 0.25)
    x = chooser.array(one, 0.5, 2.0)
    x.flat[0] = 4.0
    p = chooser.choice([2.0, 1.0, 3.0, math.inf])
    if math.isinf(p) and other != one:
        y = chooser.array(one, -0.25, 0.25)
    return Sample((x, y), {"p": p})


tracked_op("dist", "distance", _dist, _draw_dist, _dist_pull)


def _factor(size: float, squares: float) -> Tracked:
    return _power(tracked(size) / squares, 0.5)


def _data_norm(x: Tracked, *, size: float, total: float, squares: float) -> Sequence[Tracked]:
    """(x - total / size) * sqrt(size / squares): all that was seen has then mean 0 and mean square 1."""
    return [(x - tracked(total) / size) * _factor(size, squares)]


def _data_norm_pull(
    cotangents: Sequence[Tracked], x: Tracked, *, size: float, total: float, squares: float
) -> Sequence[Optional[Tracked]]:
    """The statistics are constants."""
    return [cotangents[0] * _factor(size, squares)]


def _draw_data_norm(chooser: Chooser) -> Sample:
    attributes = {"size": 16.0, "total": chooser.choice([0.0, -6.0, 20.0]), "squares": chooser.choice([16.0, 40.0])}
    return Sample((chooser.array(chooser.shape(2, 2, 5)),), attributes)


tracked_op("data_norm", "norm", _data_norm, _draw_data_norm, _data_norm_pull)
