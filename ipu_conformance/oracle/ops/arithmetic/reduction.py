"""Reductions over axes.

``axis`` is None for all axes, a number or a tuple; ``keepdims`` keeps the reduced axes with length 1. Where several
elements are the minimum or maximum, ``ties`` says who gets the gradient: "split" shares it evenly (torch.amax,
tf.reduce_max, paddle.amax), "first" gives it to the first in memory order (torch.max with a dim), "all" gives it
whole to each (paddle.max).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import numpy as np

from ipu_conformance.oracle.op import OPS, Array, Op, Term, exact
from ipu_conformance.oracle.ops.arithmetic.pointwise import Draw, summed
from ipu_conformance.oracle.sample import Chooser, Sample
from ipu_conformance.oracle.tolerance.ops import ULPS

Axis = Optional[Union[int, Tuple[int, ...]]]


def axes_of(x: Array, axis: Axis) -> Tuple[int, ...]:
    """The reduced axes as non-negative numbers."""
    if axis is None:
        return tuple(range(x.ndim))
    return tuple(a % x.ndim for a in (axis if isinstance(axis, tuple) else (axis,)))


def length_of(x: Array, axis: Axis) -> int:
    """How many elements meet in one result."""
    return int(np.prod([x.shape[a] for a in axes_of(x, axis)]))


def spread(values: Array, x: Array, axis: Axis) -> Array:
    """``values`` with the reduced axes back, of length 1, so that they broadcast against ``x``."""
    return np.reshape(values, [1 if a in axes_of(x, axis) else size for a, size in enumerate(x.shape)])


def folded(x: Array, axis: Axis) -> Array:
    """``x`` with the reduced axes flattened into a last one."""
    axes = axes_of(x, axis)
    kept = [a for a in range(x.ndim) if a not in axes]
    return np.transpose(x, [*kept, *axes]).reshape([*(x.shape[a] for a in kept), -1])


def unfolded(values: Array, x: Array, axis: Axis) -> Array:
    """``values`` in the layout of ``folded(x, axis)``, back in that of ``x``."""
    axes = axes_of(x, axis)
    order = [a for a in range(x.ndim) if a not in axes] + list(axes)
    return np.transpose(values.reshape([x.shape[a] for a in order]), np.argsort(order))


def drawn(
    values: Callable[[Chooser, Tuple[int, ...]], Array] = Chooser.array, smallest: int = 1, **choices: Sequence[Any]
) -> Draw:
    """Samples of ``values``, no axis shorter than ``smallest``, with axes to reduce and one of each of ``choices``."""

    def draw(chooser: Chooser) -> Sample:
        shape = tuple(max(size, smallest) for size in chooser.shape(1, 3, 6))
        axis = chooser.choice([None, -1, 0, (0, len(shape) - 1), tuple(range(len(shape)))])
        axis = axis if not isinstance(axis, tuple) else tuple(sorted(set(axis)))
        attributes = {name: chooser.choice(options) for name, options in choices.items()}
        return Sample((values(chooser, shape),), {"axis": axis, "keepdims": chooser.boolean(), **attributes})

    return draw


Terms = Callable[..., List[Term]]


def reduction(
    name: str,
    f: Callable[..., Array],
    gradient: Callable[..., Array],
    terms: Terms,
    gradient_terms: Terms,
    draw: Draw,
) -> Op:
    """A registered reduction of one operand.

    ``f`` reduces with ``axis`` and keepdims. ``gradient(g, x, y, axis, …)`` gets cotangent and value with the reduced
    axes kept. ``terms(x, y, axis, …)`` and ``gradient_terms(gradient, g, x, y, axis, …)`` list what may be lost.
    """

    def forward(x: Array, *, axis: Axis = None, keepdims: bool = False, **rest: Any) -> Array:
        return np.asarray(f(x, axis=axes_of(x, axis), keepdims=keepdims, **rest))

    def error(y: Array, x: Array, *, axis: Axis = None, keepdims: bool = False, **rest: Any) -> List[List[Term]]:
        return [[_reshaped(term, y.shape) for term in terms(x, spread(y, x, axis), axes_of(x, axis), **rest)]]

    def vjp(g: Array, x: Array, *, axis: Axis = None, keepdims: bool = False, **rest: Any) -> List[Array]:
        y = forward(x, axis=axis, keepdims=True, **rest)
        return [gradient(spread(g, x, axis), x, y, axes_of(x, axis), **rest) * np.ones_like(x)]

    def vjp_error(
        gradients: Sequence[Array], g: Array, x: Array, *, axis: Axis = None, keepdims: bool = False, **rest: Any
    ) -> List[List[Term]]:
        y = forward(x, axis=axis, keepdims=True, **rest)
        return [gradient_terms(gradients[0], spread(g, x, axis), x, y, axes_of(x, axis), **rest)]

    return OPS.add(Op(name, "reduction", forward, error, draw, vjp, vjp_error))


def _reshaped(term: Term, shape: Tuple[int, ...]) -> Term:
    return replace(term, magnitude=term.magnitude.reshape(shape))


def _total(x: Array, axis: Axis) -> Array:
    return np.asarray(np.sum(x, axis=axis, keepdims=True))


# Sums and products.

reduction(
    "sum",
    np.sum,
    lambda g, x, y, axis: g,
    lambda x, y, axis: summed(_total(np.abs(x), axis), length_of(x, axis)),
    lambda gradient, g, x, y, axis: [],
    drawn(),
)
reduction(
    "mean",
    np.mean,
    lambda g, x, y, axis: g / length_of(x, axis),
    lambda x, y, axis: summed(_total(np.abs(x), axis) / length_of(x, axis), length_of(x, axis), ULPS["divide"]),
    lambda gradient, g, x, y, axis: [Term(np.abs(gradient), ulps=ULPS["divide"])],
    drawn(),
)


def _others(x: Array, axis: Axis) -> Array:
    """For each element the product of all others in its group, without dividing, so that zeros are not special."""
    rows = folded(x, axis)
    ones = np.ones_like(rows[..., :1])
    before = np.cumprod(np.concatenate([ones, rows[..., :-1]], axis=-1), axis=-1)
    after = np.cumprod(np.concatenate([ones, rows[..., :0:-1]], axis=-1), axis=-1)[..., ::-1]
    return unfolded(before * after, x, axis)


reduction(
    "prod",
    np.prod,
    lambda g, x, y, axis: g * _others(x, axis),
    lambda x, y, axis: summed(np.abs(y), length_of(x, axis)),
    # Where no element is 0 the product may be divided by each instead.
    lambda gradient, g, x, y, axis: summed(np.abs(gradient), length_of(x, axis), 0.5 + ULPS["divide"]),
    drawn(lambda chooser, shape: chooser.array(shape, -2.0, 2.0, [0.0])),
)


# Extremes.


def _extreme_share(x: Array, y: Array, axis: Axis, ties: str) -> Array:
    equal = (x == y).astype(float)
    if ties == "all":
        return equal
    if ties == "split":
        return equal / _total(equal, axis)
    rows = folded(equal, axis)
    return unfolded(rows * (np.cumsum(rows, axis=-1) == 1), x, axis)


def _share_terms(gradient: Array, x: Array, y: Array, axis: Axis, ties: str) -> List[Term]:
    """A share of a tie is divided and rounded; a sole extreme gets its gradient as it is."""
    shared = _total(x == y, axis) > 1
    return [Term(np.abs(gradient) * shared, ulps=ULPS["divide"])] if ties == "split" and shared.any() else []


for _name, _extreme in (("min", np.min), ("max", np.max)):
    reduction(
        _name,
        lambda x, *, axis, keepdims, ties="split", f=_extreme: f(x, axis=axis, keepdims=keepdims),
        lambda g, x, y, axis, ties="split": g * _extreme_share(x, y, axis, ties),
        lambda x, y, axis, **rest: [],
        lambda gradient, g, x, y, axis, ties="split": _share_terms(gradient, x, y, axis, ties),
        drawn(Chooser.distinct),
    )


# Log-sum-exp: with m the maximum, log(sum(exp(x - m))) + m. The rounding of x - m is weighted by the softmax.


def _logsumexp(x: Array, *, axis: Axis, keepdims: bool) -> Array:
    top = np.max(x, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    y = np.log(_total(np.exp(x - top), axis)) + top
    return y if keepdims else np.squeeze(y, axis=axis)


def _logsumexp_terms(x: Array, y: Array, axis: Axis) -> List[Term]:
    top = np.max(x, axis=axis, keepdims=True)
    shifts = _total(np.exp(x - y) * np.abs(x - top), axis)
    logarithm = Term(np.abs(y - top), ulps=ULPS["log"])
    return [Term(shifts), *summed(np.ones_like(y), length_of(x, axis), ULPS["exp"]), logarithm, Term(np.abs(y))]


def _softmax_terms(gradient: Array, g: Array, x: Array, y: Array, axis: Axis) -> List[Term]:
    """What g * exp(x - y) loses: the errors of x - y become relative errors, those of y among them."""
    size = np.abs(gradient)
    of_y = [replace(term, magnitude=size * term.magnitude) for term in _logsumexp_terms(x, y, axis)]
    return [*of_y, Term(size * np.abs(x - y)), Term(size, ulps=ULPS["exp"] + 0.5)]


reduction("logsumexp", _logsumexp, lambda g, x, y, axis: g * np.exp(x - y), _logsumexp_terms, _softmax_terms, drawn())


# p-norms. The gradient at a zero vector is 0; for p = inf ties share it evenly.


def _p_norm(x: Array, *, axis: Axis, keepdims: bool, p: float = 2.0) -> Array:
    if np.isinf(p):
        return np.asarray(np.max(np.abs(x), axis=axis, keepdims=keepdims))
    # NumPy rounds the power of a scalar otherwise than that of an array: the axes go last.
    norm = np.sum(np.abs(x) ** p, axis=axis, keepdims=True) ** (1 / p)
    return norm if keepdims else np.asarray(np.squeeze(norm, axis))


def _p_norm_gradient(g: Array, x: Array, y: Array, axis: Axis, p: float = 2.0) -> Array:
    if np.isinf(p):
        return g * np.sign(x) * _extreme_share(np.abs(x), y, axis, "split")
    safe = np.where(y == 0, 1.0, y)
    return g * np.sign(x) * np.where(y == 0, 0.0, (np.abs(x) / safe) ** (p - 1))


def _power_ulps(p: float) -> float:
    return 0.5 if p == 1 else ULPS["sqrt"] if p == 2 else ULPS["pow"]


def _p_norm_terms(x: Array, y: Array, axis: Axis, p: float = 2.0) -> List[Term]:
    if np.isinf(p):
        return []
    # A relative error of the sum is divided by p in the root.
    return [*summed(y / p, length_of(x, axis), _power_ulps(p)), Term(y, ulps=_power_ulps(p))]


def _p_norm_gradient_terms(gradient: Array, g: Array, x: Array, y: Array, axis: Axis, p: float = 2.0) -> List[Term]:
    if p == 1:
        return []
    if np.isinf(p):
        return _share_terms(gradient, np.abs(x), y, axis, "split")
    size = np.abs(gradient)
    of_y = [replace(term, magnitude=(p - 1) * size * term.magnitude / y) for term in _p_norm_terms(x, y, axis, p)]
    return [*of_y, Term(size, ulps=ULPS["divide"] + 2 * _power_ulps(p) + 0.5)]


def _draw_norm_values(chooser: Chooser, shape: Tuple[int, ...]) -> Array:
    return chooser.distinct(shape, 0.125, 3.0) * np.where(chooser.integers(shape, 0, 1), 1.0, -1.0)


reduction(
    "p_norm",
    _p_norm,
    _p_norm_gradient,
    _p_norm_terms,
    _p_norm_gradient_terms,
    drawn(_draw_norm_values, p=[2.0, 1.0, 3.0, 1.5, np.inf]),
)


# Variance and standard deviation; ``correction`` is 0 for the population's and 1 for the sample's estimate. Devices
# use two passes or Welford's update, whose error grows with n * sqrt(mean(x**2) / var), the problem's condition.


def _centred(x: Array, axis: Axis) -> Array:
    return np.asarray(x - np.mean(x, axis=axis, keepdims=True))


def _condition(x: Array, axis: Axis) -> Array:
    return np.asarray(np.sqrt(np.mean(x**2, axis=axis, keepdims=True) / np.var(x, axis=axis, keepdims=True)))


def _centred_terms(slope: Array, x: Array, axis: Axis) -> List[Term]:
    """What ``slope * (x - mean(x))`` loses."""
    mean = _total(np.abs(x), axis) / length_of(x, axis)
    own = Term(np.abs(slope * _centred(x, axis)), ulps=ULPS["divide"] + 1.5)
    return [*summed(np.abs(slope) * mean * np.ones_like(x), length_of(x, axis), ULPS["divide"]), own]


reduction(
    "var",
    lambda x, *, axis, keepdims, correction=0: np.asarray(np.var(x, axis, ddof=correction, keepdims=keepdims)),
    lambda g, x, y, axis, correction=0: g * 2 * _centred(x, axis) / (length_of(x, axis) - correction),
    lambda x, y, axis, correction=0: summed(y * _condition(x, axis), length_of(x, axis), ULPS["divide"] + 1.5),
    lambda gradient, g, x, y, axis, correction=0: _centred_terms(2 * g / (length_of(x, axis) - correction), x, axis),
    drawn(smallest=2, correction=[0, 1]),
)
reduction(
    "std",
    lambda x, *, axis, keepdims, correction=0: np.asarray(np.std(x, axis, ddof=correction, keepdims=keepdims)),
    lambda g, x, y, axis, correction=0: g * _centred(x, axis) / (y * (length_of(x, axis) - correction)),
    lambda x, y, axis, correction=0: [
        *summed(y * _condition(x, axis) / 2, length_of(x, axis), ULPS["divide"] + 1.5),
        Term(y, ulps=ULPS["sqrt"]),
    ],
    lambda gradient, g, x, y, axis, correction=0: [
        *_centred_terms(g / (y * (length_of(x, axis) - correction)), x, axis),
        *summed(np.abs(gradient) * _condition(x, axis) / 2, length_of(x, axis), 2 * ULPS["divide"] + ULPS["sqrt"]),
    ],
    drawn(smallest=2, correction=[0, 1]),
)


# Logic.


def _any(x: Array, *, axis: Axis = None, keepdims: bool = False) -> Array:
    return np.asarray(np.any(x, axis=axis, keepdims=keepdims))


def _all(x: Array, *, axis: Axis = None, keepdims: bool = False) -> Array:
    return np.asarray(np.all(x, axis=axis, keepdims=keepdims))


def _booleans(chooser: Chooser, shape: Tuple[int, ...]) -> Array:
    return chooser.integers(shape, 0, 1).astype(bool)


OPS.add(Op("any", "reduction", _any, exact, drawn(_booleans)))
OPS.add(Op("all", "reduction", _all, exact, drawn(_booleans)))
