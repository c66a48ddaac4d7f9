"""Tails and quantiles of the binomial, Student's, F and non-central t distributions, from ``math`` alone.

SciPy has all of these, but SDK users' machines need not have SciPy. The tests hold every function to it.
"""

from __future__ import annotations

import math
import sys
from functools import lru_cache
from statistics import NormalDist
from typing import Callable, Tuple

_NORMAL = NormalDist()


def beta_tails(a: float, b: float, x: float, y: float) -> Tuple[float, float]:
    """The regularised incomplete beta function I_x(a, b) and its complement, the smaller with full precision.

    ``y`` is 1 - x, given apart because whoever has a tiny y knows more of its digits than 1 - x keeps.
    """
    if x <= 0.0:
        return 0.0, 1.0
    if y <= 0.0:
        return 1.0, 0.0
    log_front = a * math.log(x) + b * math.log(y) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    if x < (a + 1.0) / (a + b + 2.0):
        lower = math.exp(log_front) * _continued_fraction(a, b, x) / a
        return lower, 1.0 - lower
    upper = math.exp(log_front) * _continued_fraction(b, a, y) / b
    return 1.0 - upper, upper


def binomial_at_least(k: int, n: int, p: float) -> float:
    """The probability of ``k`` or more successes in ``n`` independent trials of probability ``p``."""
    if k <= 0:
        return 1.0
    return 0.0 if k > n else beta_tails(k, n - k + 1, p, 1.0 - p)[0]


def binomial_at_most(k: int, n: int, p: float) -> float:
    """The probability of ``k`` or fewer successes in ``n`` independent trials of probability ``p``."""
    if k >= n:
        return 1.0
    return 0.0 if k < 0 else beta_tails(k + 1, n - k, p, 1.0 - p)[1]


def binomial_two_sided(k: int, n: int, p: float) -> float:
    """Twice the smaller tail, at most 1: an exact test of ``k`` successes whose size is never above its level."""
    return min(1.0, 2.0 * min(binomial_at_least(k, n, p), binomial_at_most(k, n, p)))


def student_above(t: float, freedom: float) -> float:
    """The probability that Student's t with ``freedom`` degrees of freedom is above ``t``."""
    square = t * t
    half_tail = 0.5 * beta_tails(0.5, 0.5 * freedom, square / (freedom + square), freedom / (freedom + square))[1]
    return half_tail if t > 0.0 else 1.0 - half_tail


def student_quantile_above(probability: float, freedom: float) -> float:
    """The t that Student's t exceeds with ``probability``; a small probability keeps its precision."""
    _require_probability(probability)
    if probability > 0.5:
        return -student_quantile_above(1.0 - probability, freedom)
    return _root(lambda t: _log_ratio(student_above(t, freedom), probability), 0.0)


def f_above(x: float, above: float, below: float) -> float:
    """The probability that F with ``above`` over ``below`` degrees of freedom exceeds ``x``."""
    total = above * x + below
    return beta_tails(0.5 * above, 0.5 * below, above * x / total, below / total)[1]


def f_quantile_above(probability: float, above: float, below: float) -> float:
    """The x that F with ``above`` over ``below`` degrees of freedom exceeds with ``probability``."""
    _require_probability(probability)
    return _root(lambda x: _log_ratio(f_above(x, above, below), probability), 0.0)


def noncentral_t_above(t: float, freedom: float, shift: float) -> float:
    """The probability that (Z + shift) / sqrt(chi2 / freedom) is above ``t``.

    It is the mean of P(Z > t*u - shift) over u = sqrt(chi2 / freedom), by the trapezium rule, which converges
    exponentially here as the integrand and its derivatives vanish at both ends.
    """
    spread = 12.0 / math.sqrt(2.0 * freedom)
    low, high = max(0.0, 1.0 - spread), 1.0 + spread
    steps = 500
    width = (high - low) / steps
    log_constant = math.log(2.0) + 0.5 * freedom * math.log(0.5 * freedom) - math.lgamma(0.5 * freedom)
    total = 0.0
    for step in range(1, steps):
        u = low + step * width
        log_density = log_constant + (freedom - 1.0) * math.log(u) - 0.5 * freedom * u * u
        total += math.exp(log_density) * _NORMAL.cdf(shift - t * u)
    return total * width


@lru_cache(maxsize=None)
def noncentral_shift(probability: float, t: float, freedom: float) -> float:
    """The shift with which non-central t exceeds ``t`` with ``probability``."""
    _require_probability(probability)
    return _root(lambda shift: probability - noncentral_t_above(t, freedom, shift), 0.0)


def _require_probability(probability: float) -> None:
    if not 0.0 < probability < 1.0:
        raise ValueError(f"probability is {probability}; it must lie between 0 and 1, both excluded")


def _continued_fraction(a: float, b: float, x: float) -> float:
    """Lentz's evaluation of the incomplete beta function's continued fraction."""
    tiny = sys.float_info.min
    c, d = 1.0, 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1.0), tiny)
    result = d
    # About sqrt(max(a, b)) terms are needed; the limit only stops what could never converge.
    for m in range(1, 1000 + 20 * int(math.sqrt(max(a, b)))):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0)),
        ):
            d = 1.0 / _away_from_zero(1.0 + numerator * d, tiny)
            c = _away_from_zero(1.0 + numerator / c, tiny)
            result *= c * d
        if abs(c * d - 1.0) < 4.0 * sys.float_info.epsilon:
            return result
    raise ArithmeticError(f"the incomplete beta function did not converge for a={a}, b={b}, x={x}")


def _away_from_zero(value: float, tiny: float) -> float:
    return tiny if abs(value) < tiny else value


def _root(decreasing: Callable[[float], float], low: float) -> float:
    """Where a decreasing function that is positive at ``low`` crosses zero, to the last bits.

    Chandrupatla's method: inverse quadratic interpolation through the last three points where they are in order, else
    bisection.
    """
    b, at_b = low, math.inf
    a = low + 1.0
    at_a = decreasing(a)
    while at_a > 0.0:
        b, at_b = a, at_a
        a *= 2.0
        at_a = decreasing(a)
    share = 0.5
    while True:
        x = a + share * (b - a)
        at_x = decreasing(x)
        if (at_x > 0.0) == (at_a > 0.0):
            c, at_c = a, at_a
        else:
            c, at_c, b, at_b = b, at_b, a, at_a
        a, at_a = x, at_x
        best, at_best = (a, at_a) if abs(at_a) < abs(at_b) else (b, at_b)
        least = 2.0 * sys.float_info.epsilon * abs(best) / abs(b - a)
        if at_best == 0.0 or least > 0.5:
            return best
        share = 0.5
        if math.isfinite(at_a) and math.isfinite(at_b) and math.isfinite(at_c) and at_c not in (at_a, at_b):
            place, height = (a - b) / (c - b), (at_a - at_b) / (at_c - at_b)
            if height**2 < place and (1.0 - height) ** 2 < 1.0 - place:
                share = at_a / (at_b - at_a) * at_c / (at_b - at_c)
                share += (c - a) / (b - a) * at_a / (at_c - at_a) * at_b / (at_c - at_b)
        share = min(1.0 - least, max(least, share))


def _log_ratio(tail: float, probability: float) -> float:
    """How far a tail is above a probability; tails fall exponentially, so that their logarithms are nearly straight."""
    return math.log(tail / probability) if tail > 0.0 else -math.inf
