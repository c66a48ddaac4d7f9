"""Activation functions: a row holds the function, its derivative and the size of what each of them adds up.

A value computed as a difference of larger ones errs relative to those: ``size`` and ``slope_size`` say how large they
are (by default as large as the result), ``ulps`` and ``slope_ulps`` how well the functions in it are evaluated.
"""

from __future__ import annotations

import math
from typing import Any, Callable, List, Mapping, Optional, Sequence

import numpy as np

from ipu_conformance.oracle.op import OPS, Array, Op, Term, exact, unbroadcast
from ipu_conformance.oracle.sample import Chooser, Sample
from ipu_conformance.oracle.tolerance.ops import ULPS

Function = Callable[..., Array]
NO_ATTRIBUTES: Mapping[str, Sequence[float]] = {}


def erf(x: Array) -> Array:
    """The error function, by the C library's own."""
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1.0) / (1.0 + small)


def softplus(x: Array) -> Array:
    """log(1 + exp(x)), without overflow."""
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def _density(x: Array) -> Array:
    """The density of the normal distribution."""
    return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _activation(
    name: str,
    f: Function,
    slope: Function,
    *,
    size: Optional[Function] = None,
    slope_size: Optional[Function] = None,
    ulps: float = 0.5,
    slope_ulps: float = 0.5,
    kinks: Sequence[float] = (),
    attributes: Mapping[str, Sequence[Any]] = NO_ATTRIBUTES,
    kinks_of: Optional[Callable[..., Sequence[float]]] = None,
) -> None:
    """Add an activation; ``ulps`` of 0 is an exact selection, and a gradient is one product more than its slope."""

    def error(y: Array, x: Array, **values: Any) -> Sequence[Sequence[Term]]:
        return [[Term(np.abs((size or f)(x, **values)), ulps=ulps)]] if ulps else exact(y)

    def vjp(g: Array, x: Array, **values: Any) -> Sequence[Array]:
        return (g * slope(x, **values),)

    def vjp_error(gradients: Any, g: Array, x: Array, **values: Any) -> List[List[Term]]:
        terms = [Term(np.abs(g * (slope_size or slope)(x, **values)), ulps=slope_ulps + 0.5)]
        return [terms] if slope_ulps else [[]]

    def draw(chooser: Chooser) -> Sample:
        values = {key: chooser.choice(options) for key, options in attributes.items()}
        avoid = kinks_of(**values) if kinks_of else kinks
        return Sample((chooser.array(chooser.shape(1, 4, 5), -4.0, 4.0, avoid=avoid),), values)

    OPS.add(Op(name, "activation", f, error, draw, vjp, vjp_error))


def _step(x: Array, low: float = 0.0, high: float = math.inf) -> Array:
    """1 where x lies between ``low`` and ``high``."""
    return ((x > low) & (x < high)).astype(np.float64)


_SIGMOID = ULPS["exp"] + ULPS["divide"] + 0.5
_TANH = ULPS["tanh"]
_SOFTPLUS = ULPS["exp"] + ULPS["log"] + 0.5

# Exact selections: the result is the input or a constant.
_activation("relu", lambda x: np.maximum(x, 0.0), _step, ulps=0, slope_ulps=0, kinks=(0.0,))
_activation(
    "relu6", lambda x: np.clip(x, 0.0, 6.0), lambda x: _step(x, 0.0, 6.0), ulps=0, slope_ulps=0, kinks=(0.0, 6.0)
)
_activation(
    "hardtanh",
    lambda x, low, high: np.clip(x, low, high),
    lambda x, low, high: _step(x, low, high),
    ulps=0,
    slope_ulps=0,
    attributes={"low": (-1.0, -0.5), "high": (1.0, 2.0)},
    kinks_of=lambda low, high: (low, high),
)
_activation(
    "hardshrink",
    lambda x, threshold: np.where(np.abs(x) > threshold, x, 0.0),
    lambda x, threshold: _step(np.abs(x), threshold),
    ulps=0,
    slope_ulps=0,
    attributes={"threshold": (0.5, 1.25)},
    kinks_of=lambda threshold: (-threshold, threshold),
)
_activation(
    "threshold",
    lambda x, threshold, value: np.where(x > threshold, x, value),
    lambda x, threshold, value: _step(x, threshold),
    ulps=0,
    slope_ulps=0,
    attributes={"threshold": (1.0, 0.5), "value": (0.0, -2.0)},
    kinks_of=lambda threshold, value: (threshold,),
)

# Piecewise rational functions.
_activation(
    "leaky_relu",
    lambda x, slope: np.where(x > 0, x, slope * x),
    lambda x, slope: np.where(x > 0, 1.0, slope),
    kinks=(0.0,),
    attributes={"slope": (0.25, 0.01171875)},
)
_activation(
    "softshrink",
    lambda x, threshold: np.sign(x) * np.maximum(np.abs(x) - threshold, 0.0),
    lambda x, threshold: _step(np.abs(x), threshold),
    slope_ulps=0,
    attributes={"threshold": (0.5, float(np.float32(0.3)))},
    kinks_of=lambda threshold: (-threshold, threshold),
)
_activation(
    "softsign",
    lambda x: x / (1.0 + np.abs(x)),
    lambda x: 1.0 / (1.0 + np.abs(x)) ** 2,
    slope_size=lambda x: (1.0 + 2 * np.abs(x)) / (1.0 + np.abs(x)) ** 2,
    ulps=ULPS["divide"] + 0.5,
    slope_ulps=ULPS["divide"] + 1.5,
    kinks=(0.0,),
)
_activation(
    "hardsigmoid",
    lambda x, slope, offset: np.clip(slope * x + offset, 0.0, 1.0),
    lambda x, slope, offset: slope * _step(slope * x + offset, 0.0, 1.0),
    size=lambda x, slope, offset: (slope * np.abs(x) + offset) * _step(slope * x + offset, 0.0, 1.0),
    ulps=1.5,
    slope_ulps=ULPS["divide"],
    attributes={"slope": (0.1875, 0.25), "offset": (0.5,)},
    kinks_of=lambda slope, offset: (-offset / slope, (1 - offset) / slope),
)
_activation(
    "hardswish",
    lambda x: x * np.clip(x + 3.0, 0.0, 6.0) / 6.0,
    lambda x: np.where(x > 3.0, 1.0, np.where(x < -3.0, 0.0, (2 * x + 3.0) / 6.0)),
    size=lambda x: np.abs(x) * np.clip(np.abs(x) + 3.0, 0.0, 6.0) / 6.0,
    slope_size=lambda x: _step(x, -3.0) * (2 * np.abs(x) + 3.0) / 6.0,
    ulps=ULPS["divide"] + 1,
    slope_ulps=ULPS["divide"] + 1,
    kinks=(-3.0, 3.0),
)

# Exponentials.
_activation(
    "elu",
    lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0.0))),
    lambda x, alpha: np.where(x > 0, 1.0, alpha * np.exp(np.minimum(x, 0.0))),
    size=lambda x, alpha: np.where(x > 0, x, alpha),
    slope_size=lambda x, alpha: np.where(x > 0, 1.0, 2 * alpha),
    ulps=ULPS["exp"] + 1,
    slope_ulps=ULPS["exp"] + 1,
    kinks=(0.0,),
    attributes={"alpha": (1.0, 0.5)},
)
_activation(
    "celu",
    lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0.0) / alpha)),
    lambda x, alpha: np.where(x > 0, 1.0, np.exp(np.minimum(x, 0.0) / alpha)),
    size=lambda x, alpha: np.where(x > 0, x, alpha),
    slope_size=lambda x, alpha: np.where(x > 0, 1.0, 2.0),
    ulps=ULPS["exp"] + ULPS["divide"] + 1,
    slope_ulps=ULPS["exp"] + ULPS["divide"] + 1,
    kinks=(0.0,),
    attributes={"alpha": (1.0, 0.5)},
)
SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
_activation(
    "selu",
    lambda x: SELU_SCALE * np.where(x > 0, x, SELU_ALPHA * np.expm1(np.minimum(x, 0.0))),
    lambda x: SELU_SCALE * np.where(x > 0, 1.0, SELU_ALPHA * np.exp(np.minimum(x, 0.0))),
    size=lambda x: SELU_SCALE * np.where(x > 0, x, SELU_ALPHA),
    slope_size=lambda x: SELU_SCALE * np.where(x > 0, 1.0, 2 * SELU_ALPHA),
    ulps=ULPS["exp"] + 2,
    slope_ulps=ULPS["exp"] + 2,
    kinks=(0.0,),
)
_activation(
    "sigmoid",
    sigmoid,
    lambda x: sigmoid(x) * sigmoid(-x),
    slope_size=sigmoid,
    ulps=_SIGMOID,
    slope_ulps=_SIGMOID + 1,
)
_activation(
    "log_sigmoid",
    lambda x: -softplus(-x),
    lambda x: sigmoid(-x),
    size=lambda x: np.maximum(softplus(-x), 1.0),
    slope_size=lambda x: np.ones_like(x),
    ulps=_SOFTPLUS,
    slope_ulps=_SIGMOID + 1,
)
_activation(
    "softplus",
    lambda x, beta: softplus(beta * x) / beta,
    lambda x, beta: sigmoid(beta * x),
    size=lambda x, beta: np.maximum(softplus(beta * x), 1.0) / beta,
    slope_size=lambda x, beta: np.ones_like(x),
    ulps=_SOFTPLUS + ULPS["divide"] + 0.5,
    slope_ulps=_SIGMOID + 1,
    attributes={"beta": (1.0, 2.0)},
)
_activation(
    "tanh",
    np.tanh,
    lambda x: 1.0 - np.tanh(x) ** 2,
    slope_size=lambda x: 1.0 + np.tanh(x) ** 2,
    ulps=_TANH,
    slope_ulps=_TANH,
)
_activation(
    "tanh_shrink",
    lambda x: x - np.tanh(x),
    lambda x: np.tanh(x) ** 2,
    size=lambda x: np.abs(x) + np.abs(np.tanh(x)),
    slope_size=lambda x: 1.0 + np.tanh(x) ** 2,
    ulps=_TANH,
    slope_ulps=2 * _TANH,
)


def _swish_slope(x: Array, beta: float) -> Array:
    s = sigmoid(beta * x)
    return s + beta * x * s * (1.0 - s)


for _name, _betas in (("swish", {"beta": (1.0, 0.5)}), ("silu", NO_ATTRIBUTES)):
    _activation(
        _name,
        lambda x, beta=1.0: x * sigmoid(beta * x),
        lambda x, beta=1.0: _swish_slope(x, beta),
        slope_size=lambda x, beta=1.0: sigmoid(beta * x) * (1.0 + beta * np.abs(x)),
        ulps=_SIGMOID + 1,
        slope_ulps=_SIGMOID + 1.5,
        attributes=_betas,
    )


def _mish_slope(x: Array) -> Array:
    t = np.tanh(softplus(x))
    return t + x * (1.0 - t * t) * sigmoid(x)


# tanh of softplus: softplus near zero errs relative to one (see above), and tanh passes that on.
_activation(
    "mish",
    lambda x: x * np.tanh(softplus(x)),
    _mish_slope,
    size=lambda x: np.abs(x),
    slope_size=lambda x: 1.0 + 2 * np.abs(x),
    ulps=_SOFTPLUS + _TANH + 0.5,
    slope_ulps=_SOFTPLUS + _TANH + 2,
)
_activation(
    "gelu",
    lambda x: 0.5 * x * (1.0 + erf(x / math.sqrt(2))),
    lambda x: 0.5 * (1.0 + erf(x / math.sqrt(2))) + x * _density(x),
    size=lambda x: 0.5 * np.abs(x) * (1.0 + np.abs(erf(x / math.sqrt(2)))),
    slope_size=lambda x: 0.5 + 0.5 * np.abs(erf(x / math.sqrt(2))) + np.abs(x) * _density(x),
    ulps=ULPS["erf"],
    slope_ulps=ULPS["erf"] + ULPS["exp"],
)


def _gelu_tanh_argument(x: Array) -> Array:
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


def _gelu_tanh_slope(x: Array, sign: float = -1.0) -> Array:
    """The derivative; with ``sign`` +1 and x >= 0 the sum of the magnitudes of what it adds up."""
    t = np.tanh(_gelu_tanh_argument(x))
    inner = math.sqrt(2 / math.pi) * (1.0 + 3 * 0.044715 * x * x)
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 + sign * t * t) * inner


_activation(
    "gelu_tanh",
    lambda x: 0.5 * x * (1.0 + np.tanh(_gelu_tanh_argument(x))),
    _gelu_tanh_slope,
    size=lambda x: 0.5 * np.abs(x) * (1.0 + np.abs(np.tanh(_gelu_tanh_argument(x)))),
    slope_size=lambda x: _gelu_tanh_slope(np.abs(x), sign=1.0),
    ulps=_TANH + 3,
    slope_ulps=2 * _TANH + 3,
)


def _by_channel(x: Array, weight: Array) -> Array:
    return weight.reshape((1, -1) + (1,) * (x.ndim - 2)) if x.ndim > 1 else weight


def prelu(x: Array, weight: Array) -> Array:
    """x, or where it is negative x times the weight of its channel (one for all, or one per channel)."""
    return np.where(x > 0, x, x * _by_channel(x, weight))


def prelu_vjp(g: Array, x: Array, weight: Array) -> Sequence[Array]:
    """The weight collects g x wherever x is negative."""
    seen = _by_channel(x, weight)
    return np.where(x > 0, g, g * seen), unbroadcast(np.where(x > 0, 0.0, g * x), seen.shape).reshape(weight.shape)


def _prelu_error(y: Array, x: Array, weight: Array) -> List[List[Term]]:
    return [[Term(np.abs(y))]]


def _prelu_vjp_error(gradients: Any, g: Array, x: Array, weight: Array) -> List[List[Term]]:
    seen = _by_channel(x, weight)
    total = unbroadcast(np.where(x > 0, 0.0, np.abs(g * x)), seen.shape).reshape(weight.shape)
    length = x.size // weight.size + 1
    return [[Term(np.abs(gradients[0]))], [Term(total, length=length, where="accumulate")]]


def _draw_prelu(chooser: Chooser) -> Sample:
    shape = tuple(chooser.integer(1, 4) for _ in range(chooser.choice((4, 3, 2))))
    weight = chooser.array((chooser.choice((shape[1], 1)),), 0.125, 0.5)
    return Sample((chooser.array(shape, -4.0, 4.0, avoid=(0.0,)), weight))


OPS.add(Op("prelu", "activation", prelu, _prelu_error, _draw_prelu, prelu_vjp, _prelu_vjp_error))


def glu(x: Array, *, axis: int = -1) -> Array:
    """The first half along ``axis`` times the sigmoid of the second."""
    first, second = np.split(x, 2, axis)
    return first * sigmoid(second)


def glu_vjp(g: Array, x: Array, *, axis: int = -1) -> Sequence[Array]:
    """The two halves of the gradient, put together again."""
    first, second = np.split(x, 2, axis)
    s = sigmoid(second)
    return (np.concatenate([g * s, g * first * s * (1.0 - s)], axis),)


def _glu_error(y: Array, x: Array, *, axis: int = -1) -> List[List[Term]]:
    return [[Term(np.abs(y), ulps=_SIGMOID + 0.5)]]


def _glu_vjp_error(gradients: Any, g: Array, x: Array, *, axis: int = -1) -> List[List[Term]]:
    first, second = np.split(x, 2, axis)
    size = np.abs(g) * sigmoid(second)
    return [[Term(np.concatenate([size, size * np.abs(first)], axis), ulps=_SIGMOID + 2)]]


def _draw_glu(chooser: Chooser) -> Sample:
    shape = list(chooser.shape(1, 3, 4))
    axis = chooser.integer(0, len(shape) - 1)
    shape[axis] *= 2
    return Sample((chooser.array(shape, -4.0, 4.0),), {"axis": axis})


OPS.add(Op("glu", "activation", glu, _glu_error, _draw_glu, glu_vjp, _glu_vjp_error))
