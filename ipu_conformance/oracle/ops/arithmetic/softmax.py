"""Softmax and its logarithm along an axis."""

from __future__ import annotations

from typing import Any, List, Sequence

import numpy as np

from ipu_conformance.oracle.op import OPS, Array, Op, Term
from ipu_conformance.oracle.sample import Chooser, Sample
from ipu_conformance.oracle.tolerance.ops import ULPS


def softmax(x: Array, *, axis: int = -1) -> Array:
    """exp(x) over its sum along ``axis``."""
    power = np.exp(x - x.max(axis=axis, keepdims=True))
    return power / power.sum(axis=axis, keepdims=True)


def softmax_vjp(g: Array, x: Array, *, axis: int = -1) -> Sequence[Array]:
    """y (g - sum(g y))."""
    y = softmax(x, axis=axis)
    return (y * (g - (g * y).sum(axis=axis, keepdims=True)),)


def log_softmax(x: Array, *, axis: int = -1) -> Array:
    """x minus the logarithm of the sum of exp(x) along ``axis``."""
    shifted = x - x.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


def log_softmax_vjp(g: Array, x: Array, *, axis: int = -1) -> Sequence[Array]:
    """g - y sum(g)."""
    return (g - softmax(x, axis=axis) * g.sum(axis=axis, keepdims=True),)


def _depth(x: Array, axis: int) -> Array:
    """How far each x lies below the largest: exp passes the rounding of that difference on."""
    return np.abs(x - x.max(axis=axis, keepdims=True))


def softmax_error(y: Array, x: Array, *, axis: int = -1) -> List[List[Term]]:
    """The exponential of a rounded difference, a sum of positive terms and a division."""
    return [
        [
            Term(y * (1.0 + _depth(x, axis)), ulps=ULPS["exp"] + ULPS["divide"] + 0.5),
            Term(y, length=x.shape[axis], where="accumulate"),
        ]
    ]


def _softmax_vjp_error(gradients: Any, g: Array, x: Array, *, axis: int = -1) -> List[List[Term]]:
    y = softmax(x, axis=axis)
    size = y * (np.abs(g) + (np.abs(g) * y).sum(axis=axis, keepdims=True))
    return [
        [
            Term(size * (1.0 + _depth(x, axis)), ulps=ULPS["exp"] + ULPS["divide"] + 1.5),
            Term(2 * size, length=x.shape[axis], where="accumulate"),
        ]
    ]


def log_softmax_error(y: Array, x: Array, *, axis: int = -1) -> List[List[Term]]:
    """A difference from the largest, and the logarithm of a sum between 1 and its length."""
    spread = np.abs(y + _depth(x, axis))  # the logarithm of the sum
    return [
        [
            Term(_depth(x, axis) + np.abs(y)),
            Term(1.0 + spread, ulps=ULPS["exp"] + ULPS["log"]),
            Term(np.ones_like(x), length=x.shape[axis], where="accumulate"),
        ]
    ]


def _log_softmax_vjp_error(gradients: Any, g: Array, x: Array, *, axis: int = -1) -> List[List[Term]]:
    product = softmax(x, axis=axis) * np.abs(g).sum(axis=axis, keepdims=True)
    depth = 1.0 + _depth(x, axis)
    return [
        [
            Term(product * depth, ulps=ULPS["exp"] + ULPS["log"] + 1.0),
            Term(2 * product, length=x.shape[axis], where="accumulate"),
            Term(np.abs(g) + product),
        ]
    ]


def _draw(chooser: Chooser) -> Sample:
    shape = chooser.shape(1, 4, 6)
    return Sample((chooser.array(shape, -4.0, 4.0),), {"axis": chooser.integer(-1, len(shape) - 1)})


OPS.add(Op("softmax", "softmax", softmax, softmax_error, _draw, softmax_vjp, _softmax_vjp_error))
OPS.add(Op("log_softmax", "softmax", log_softmax, log_softmax_error, _draw, log_softmax_vjp, _log_softmax_vjp_error))
