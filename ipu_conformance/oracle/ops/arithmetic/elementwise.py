"""Element-wise arithmetic with broadcasting.

At a kink, where frameworks choose their subgradient, the attribute ``ties`` or the row's comment says which is meant.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict

import numpy as np

from ipu_conformance.oracle.op import Array
from ipu_conformance.oracle.ops.arithmetic.pointwise import broadcastable, operands, pointwise
from ipu_conformance.oracle.sample import Chooser, Sample
from ipu_conformance.oracle.tolerance.ops import ULPS

WIDE = (-3.0, 3.0)
NONZERO = (-3.0, 3.0, 0.0)
POSITIVE = (0.125, 4.0)
SQRT_PI = math.sqrt(math.pi)

erf = np.vectorize(math.erf, otypes=[float])


def _constant(value: float) -> Callable[..., Array]:
    return lambda *inputs, **attributes: np.asarray(value)


zero, one, minus_one = _constant(0.0), _constant(1.0), _constant(-1.0)
EXACT: Dict[str, Any] = {"ulps": 0, "partial_ulps": 0}

# Arithmetic.

pointwise("add", np.add, one, one, draw=operands(WIDE, WIDE), partial_ulps=0)
pointwise("sub", np.subtract, one, minus_one, draw=operands(WIDE, WIDE), partial_ulps=0)
pointwise("mul", np.multiply, lambda a, b: b, lambda a, b: a, draw=operands(WIDE, WIDE))
pointwise(
    "div",
    np.divide,
    lambda a, b: 1 / b,
    lambda a, b: -a / b**2,
    draw=operands(WIDE, NONZERO),
    ulps=ULPS["divide"],
    partial_ulps=2 * ULPS["divide"] + 0.5,
)
pointwise(
    "pow",
    np.power,
    lambda a, b: b * a ** (b - 1),
    lambda a, b: a**b * np.log(a),
    draw=operands(POSITIVE, WIDE),
    ulps=ULPS["pow"],
    partial_ulps=ULPS["pow"] + 1,
    # The exponent b - 1 is rounded before it is used.
    partial_steps=(lambda a, b: b * a ** (b - 1) * (1 + np.abs((b - 1) * np.log(a))), None),
)


# Division with remainder, in its two conventions: the quotient is rounded down and the remainder has the divisor's
# sign (Python; torch.remainder, tf.math.floormod, paddle.remainder), or it is rounded towards zero and the remainder
# has the dividend's sign (C; torch.fmod, tf.truncatemod). The latter is always a number of the format, so it is exact;
# the former is that or one addition away, and may be computed as a - b * quotient, hence |a| + |b|.


def _draw_division(chooser: Chooser) -> Sample:
    """A dividend near halves of integers, a divisor near small integers: quotients stay away from the steps."""
    first, second = broadcastable(chooser, 2)
    a = chooser.integers(first, -6, 5) + chooser.array(first, 0.3, 0.7)
    b = chooser.integers(second, 1, 3) * chooser.array(second, 0.98, 1.02)
    return Sample((a, b * np.where(chooser.integers(second, 0, 1), 1.0, -1.0)))


pointwise("floor_div", np.floor_divide, zero, zero, draw=_draw_division, **EXACT)
pointwise("trunc_div", lambda a, b: np.trunc(a / b), zero, zero, draw=_draw_division, **EXACT)
pointwise(
    "floor_mod",
    np.mod,
    one,
    lambda a, b: -np.floor(a / b),
    draw=_draw_division,
    steps=lambda a, b: np.abs(a) + np.abs(b),
)
pointwise("trunc_mod", np.fmod, one, lambda a, b: -np.trunc(a / b), draw=_draw_division, ulps=0)


# Extremes. At a tie the gradient goes to both operands in halves (torch), or whole to the first (TensorFlow, where
# a >= b) or to the second (Paddle, where a > b fails).


def _share(wins: Array, equal: Array, ties: str, mine: str) -> Array:
    return np.where(equal, {"half": 0.5, mine: 1.0}.get(ties, 0.0), wins)


def _draw_distinct(chooser: Chooser) -> Sample:
    first, second = broadcastable(chooser, 2)
    values = chooser.distinct((int(np.prod(first)) + int(np.prod(second)),))
    a, b = np.split(values, [int(np.prod(first))])
    return Sample((a.reshape(first), b.reshape(second)))


pointwise(
    "maximum",
    lambda a, b, *, ties="half": np.maximum(a, b),
    lambda a, b, *, ties="half": _share(a > b, a == b, ties, "first"),
    lambda a, b, *, ties="half": _share(a < b, a == b, ties, "second"),
    draw=_draw_distinct,
    **EXACT,
)
pointwise(
    "minimum",
    lambda a, b, *, ties="half": np.minimum(a, b),
    lambda a, b, *, ties="half": _share(a < b, a == b, ties, "first"),
    lambda a, b, *, ties="half": _share(a > b, a == b, ties, "second"),
    draw=_draw_distinct,
    **EXACT,
)
# On a border of clip the gradient passes, as in torch and TensorFlow; Paddle stops it there.
pointwise(
    "clip",
    lambda x, *, low, high: np.clip(x, low, high),
    lambda x, *, low, high: (x >= low) & (x <= high),
    draw=operands((*WIDE, -1.0, 0.5), attributes=lambda chooser: {"low": -1.0, "high": 0.5}),
    **EXACT,
)


# Signs and rounding. The subgradient of abs at 0 is 0; steps have gradient 0.

STEPS = (-3.0, 3.0, *range(-3, 4), *(k + 0.5 for k in range(-3, 3)))

pointwise("neg", np.negative, minus_one, draw=operands(WIDE), **EXACT)
pointwise("abs", np.abs, np.sign, draw=operands(NONZERO), **EXACT)
pointwise("sign", np.sign, zero, draw=operands(NONZERO), **EXACT)
pointwise("floor", np.floor, zero, draw=operands(STEPS), **EXACT)
pointwise("ceil", np.ceil, zero, draw=operands(STEPS), **EXACT)
pointwise("round", np.rint, zero, draw=operands(STEPS), **EXACT)  # halves go to the even neighbour; Paddle: away from 0
pointwise("trunc", np.trunc, zero, draw=operands(STEPS), **EXACT)
pointwise("frac", lambda x: x - np.trunc(x), one, draw=operands(STEPS), **EXACT)


# Functions of one operand: value, derivative, range of samples; what the derivative costs beside its function is
# at most two further products.


def _function(
    name: str,
    f: Callable[..., Array],
    derivative: Callable[..., Array],
    span: Any,
    ulps: float,
    cost: float,
    **rest: Any,
) -> None:
    pointwise(name, f, derivative, draw=operands(span), ulps=ulps, partial_ulps=cost, **rest)


_function("square", np.square, lambda x: 2 * x, WIDE, 0.5, 1)
_function("sqrt", np.sqrt, lambda x: 0.5 / np.sqrt(x), POSITIVE, ULPS["sqrt"], ULPS["sqrt"] + ULPS["divide"])
_function("rsqrt", lambda x: 1 / np.sqrt(x), lambda x: -0.5 * x**-1.5, POSITIVE, ULPS["rsqrt"], 3 * ULPS["rsqrt"] + 1)
_function("reciprocal", np.reciprocal, lambda x: -1 / x**2, NONZERO, ULPS["reciprocal"], 2 * ULPS["reciprocal"] + 1)
_function("exp", np.exp, np.exp, WIDE, ULPS["exp"], ULPS["exp"] + 0.5)
_function(
    "expm1",
    np.expm1,
    np.exp,
    NONZERO,
    ULPS["expm1"],
    ULPS["expm1"] + 1,
    partial_steps=(lambda x: np.exp(x) + np.abs(np.expm1(x)),),  # the derivative is computed as the value plus 1
)
_function("log", np.log, lambda x: 1 / x, (*POSITIVE, 1.0), ULPS["log"], ULPS["divide"])
_function("log2", np.log2, lambda x: 1 / (x * math.log(2)), (*POSITIVE, 1.0), ULPS["log2"], ULPS["divide"] + 1)
_function("log10", np.log10, lambda x: 1 / (x * math.log(10)), (*POSITIVE, 1.0), ULPS["log10"], ULPS["divide"] + 1)
_function("log1p", np.log1p, lambda x: 1 / (1 + x), (-0.875, 3.0, 0.0), ULPS["log1p"], ULPS["divide"] + 0.5)


def _arc(x: Array) -> Array:
    return 1 / np.sqrt(1 - x**2)


def _arc_steps(x: Array) -> Array:
    return _arc(x) + x**2 * _arc(x) ** 3  # 1 - x**2 cancels near the ends


INSIDE = (-0.9375, 0.9375)
_function("sin", np.sin, np.cos, WIDE, ULPS["sin"], ULPS["cos"] + 0.5)
_function("cos", np.cos, lambda x: -np.sin(x), WIDE, ULPS["cos"], ULPS["sin"] + 0.5)
_function("tan", np.tan, lambda x: 1 + np.tan(x) ** 2, (-1.25, 1.25), ULPS["tan"], 2 * ULPS["tan"] + 1.5)
_function("asin", np.arcsin, _arc, INSIDE, ULPS["asin"], ULPS["rsqrt"] + 1, partial_steps=(_arc_steps,))
_function("acos", np.arccos, lambda x: -_arc(x), INSIDE, ULPS["acos"], ULPS["rsqrt"] + 1, partial_steps=(_arc_steps,))
_function("atan", np.arctan, lambda x: 1 / (1 + x**2), WIDE, ULPS["atan"], ULPS["divide"] + 1)
_function("sinh", np.sinh, np.cosh, WIDE, ULPS["sinh"], ULPS["cosh"] + 0.5)
_function("cosh", np.cosh, np.sinh, WIDE, ULPS["cosh"], ULPS["sinh"] + 0.5)
_function("asinh", np.arcsinh, lambda x: 1 / np.sqrt(1 + x**2), WIDE, ULPS["asinh"], ULPS["rsqrt"] + 1.5)
pointwise(
    "atan2",
    np.arctan2,
    lambda y, x: x / (x**2 + y**2),
    lambda y, x: -y / (x**2 + y**2),
    draw=operands(WIDE, NONZERO),
    ulps=ULPS["atan2"],
    partial_ulps=ULPS["divide"] + 2,
)
_function(
    "erf",
    erf,
    lambda x: 2 / SQRT_PI * np.exp(-(x**2)),
    WIDE,
    ULPS["erf"],
    ULPS["exp"] + 1,
    partial_steps=(lambda x: (1 + x**2) * np.exp(-(x**2)) * 2 / SQRT_PI,),  # x**2 is rounded before the exponential
)
_function(
    "erfc",
    lambda x: 1 - erf(x),
    lambda x: -2 / SQRT_PI * np.exp(-(x**2)),
    WIDE,
    ULPS["erf"] + 0.5,
    ULPS["exp"] + 1,
    steps=lambda x: np.abs(erf(x)) + np.abs(1 - erf(x)),  # it may be computed as 1 less the error function
    partial_steps=(lambda x: (1 + x**2) * np.exp(-(x**2)) * 2 / SQRT_PI,),
)


# Fused forms.


def _scale(x: Array, *, scale: float, bias: float = 0.0, bias_after_scale: bool = True) -> Array:
    return scale * x + bias if bias_after_scale else scale * (x + bias)


def _scale_steps(x: Array, *, scale: float, bias: float = 0.0, bias_after_scale: bool = True) -> Array:
    return np.abs(scale * x) + np.abs(bias if bias_after_scale else scale * bias)


def _draw_scale(chooser: Chooser) -> Dict[str, Any]:
    return {
        "scale": chooser.choice([0.75, -1.5, 3.0]),
        "bias": chooser.choice([0.0, 0.625, -2.0]),
        "bias_after_scale": chooser.boolean(),
    }


pointwise(
    "scale",
    _scale,
    lambda x, *, scale, **rest: np.asarray(scale),
    draw=operands(WIDE, attributes=_draw_scale),
    ulps=1,
    steps=_scale_steps,
)
pointwise(
    "addcmul",
    lambda x, a, b, *, value=1.0: x + value * a * b,
    one,
    lambda x, a, b, *, value=1.0: value * b,
    lambda x, a, b, *, value=1.0: value * a,
    draw=operands(WIDE, WIDE, WIDE, attributes=lambda chooser: {"value": chooser.choice([1.0, -0.5, 3.0])}),
    ulps=1.5,
    steps=lambda x, a, b, *, value=1.0: np.abs(x) + np.abs(value * a * b),
    partial_ulps=1,
)
