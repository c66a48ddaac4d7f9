"""Tolerances of single ops, derived from number formats, reduction lengths and magnitudes.

An op's error model lists its sources of rounding error. A source in which ``n`` roundings of relative size ``u``
accumulate contributes ``magnitude * gamma``, where gamma is the smaller of two bounds:

- the certain one, ``n u / (1 - n u)``;
- the probabilistic one of Higham and Mary (2019), ``exp(l sqrt(n) u + n u^2 / (1 - u)) - 1``, which a rounding error
  analysis with independent errors of mean zero exceeds with probability at most ``2 n exp(-l^2 / 2)``. The constant
  ``l`` follows from the false-alarm rate that is allowed for the whole array.

The magnitude is the sum of the absolute values of what is added. Terms that cancel have smaller partial sums, and each
rounding is relative to a partial sum: where the order of a sum has nothing to do with the values, a partial sum
deviates from its share of the result s by at most half the root r of the sum of squares, as a standard deviation. The
probabilistic bound then multiplies ``|s| + l r / 2`` instead of the magnitude, plus ``l r u`` for the products.

Stochastic rounding makes each error at most ``2 u``, and makes the errors mean independent with mean zero, so that
the probabilistic bound holds with ``2 u`` in place of ``u`` without further assumptions (Connolly, Higham and Mary,
2021). The reference is computed in float64 and errs too: its own bound is always added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle.op import Array, Op, OracleError, Outputs, Term, as_tuple
from ipu_conformance.oracle.sample import Sample

FALSE_ALARM_RATE = 1e-6
"""How often a correct device may exceed a tolerance, for one array that is compared."""

ULPS: Dict[str, float] = {
    "divide": 2.5,
    "reciprocal": 2.5,
    "sqrt": 3.0,
    "rsqrt": 2.0,
    "cbrt": 2.0,
    "exp": 3.0,
    "exp2": 3.0,
    "expm1": 3.0,
    "log": 3.0,
    "log2": 3.0,
    "log10": 3.0,
    "log1p": 2.0,
    "sin": 4.0,
    "cos": 4.0,
    "tan": 5.0,
    "asin": 4.0,
    "acos": 4.0,
    "atan": 5.0,
    "atan2": 6.0,
    "sinh": 4.0,
    "cosh": 4.0,
    "tanh": 5.0,
    "asinh": 4.0,
    "acosh": 4.0,
    "atanh": 5.0,
    "erf": 16.0,
    "erfc": 16.0,
    "pow": 16.0,
}
"""Largest error, in units in the last place, that accelerators document for their functions.

These are the limits of the OpenCL 3.0 full profile for single precision, the published standard for such devices.
"""


@dataclass(frozen=True)
class Format:
    """A floating-point format: ``unit`` is half the gap above 1, ``subnormal`` the smallest positive value."""

    unit: float
    subnormal: float


FORMATS: Dict[str, Format] = {
    "float64": Format(2.0**-53, 2.0**-1074),
    "float32": Format(2.0**-24, 2.0**-149),
    "float16": Format(2.0**-11, 2.0**-24),
    "bfloat16": Format(2.0**-8, 2.0**-133),
}
ACCUMULATE: Dict[str, str] = {"float64": "float64", "float32": "float32", "float16": "float32", "bfloat16": "float32"}
"""The accumulation type that goes with an element type unless another is named."""


@dataclass(frozen=True)
class Tolerance:
    """How far each element of one array may be from the reference, and why."""

    allowed: Array
    origin: str
    false_alarm_rate: float

    def explain(self) -> str:
        """Where the tolerance comes from and its largest value, for a failure message."""
        if not np.any(self.allowed):
            return f"{self.origin}: 0"
        return f"{self.origin}: {np.max(self.allowed):.1e}"

    def ratio(self, actual: Array, expected: Array) -> float:
        """The largest error in units of what is allowed; infinite where an exact value or a NaN differs."""
        actual, expected = np.asarray(actual), np.asarray(expected)
        same = (actual == expected) | ((actual != actual) & (expected != expected))  # NaN equals NaN here
        if same.all():
            return 0.0
        with np.errstate(invalid="ignore", divide="ignore"):
            error = np.abs(actual.astype(np.float64) - expected.astype(np.float64)) / self.allowed
        return float(np.max(np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))))


def for_op(op: Op, sample: Sample, *, output: int = 0, **precision: Any) -> Tolerance:
    """The tolerance of one output of ``op``; the keywords are those of ``for_outputs``."""
    return for_outputs(op, sample, **precision)[output]


def for_outputs(
    op: Op,
    sample: Sample,
    *,
    dtype: str = "float32",
    accumulate: Optional[str] = None,
    rounding: str = "nearest",
    false_alarm_rate: float = FALSE_ALARM_RATE,
) -> Tuple[Tolerance, ...]:
    """The tolerance of each output of ``op`` on ``sample``, whose inputs the device holds exactly in ``dtype``."""
    sample = sample.rounded_to(dtype)
    outputs = op.forward(*sample.inputs, **sample.attributes)
    terms = op.error(outputs, *sample.inputs, **sample.attributes)
    precision = Precision(dtype, accumulate or ACCUMULATE.get(dtype, dtype), rounding, false_alarm_rate)
    return tuple(precision.tolerance(value, its) for value, its in zip(as_tuple(outputs), terms))


def for_gradients(
    op: Op,
    sample: Sample,
    cotangents: Outputs,
    *,
    dtype: str = "float32",
    accumulate: Optional[str] = None,
    rounding: str = "nearest",
    false_alarm_rate: float = FALSE_ALARM_RATE,
) -> Tuple[Optional[Tolerance], ...]:
    """The tolerance of the gradient of each input of ``op``, None where an input has no gradient."""
    if op.vjp is None or op.vjp_error is None:
        raise OracleError(f"op {op.name!r} has no gradient; ask for the tolerance of its outputs only")
    held = Sample(as_tuple(cotangents)).rounded_to(dtype).inputs
    cotangents = held if isinstance(cotangents, tuple) else held[0]
    sample = sample.rounded_to(dtype)
    gradients = op.vjp(cotangents, *sample.inputs, **sample.attributes)
    terms = op.vjp_error(gradients, cotangents, *sample.inputs, **sample.attributes)
    precision = Precision(dtype, accumulate or ACCUMULATE.get(dtype, dtype), rounding, false_alarm_rate)
    return tuple(None if value is None else precision.tolerance(value, its) for value, its in zip(gradients, terms))


@dataclass(frozen=True)
class Precision:
    """How a device computes: element type, accumulation type, rounding, and the false alarms that are accepted."""

    dtype: str
    accumulate: str
    rounding: str = "nearest"
    false_alarm_rate: float = FALSE_ALARM_RATE

    def __post_init__(self) -> None:
        for name in (self.dtype, self.accumulate):
            if name not in FORMATS:
                raise OracleError(f"number format {name!r} is unknown; use one of {', '.join(FORMATS)}")
        if self.rounding not in ("nearest", "stochastic"):
            raise OracleError(f"rounding {self.rounding!r} is unknown; use 'nearest' or 'stochastic'")
        if not 0.0 < self.false_alarm_rate < 1.0:
            raise OracleError(f"the false-alarm rate is {self.false_alarm_rate}; it must lie between 0 and 1")

    def tolerance(self, value: Array, terms: Sequence[Term]) -> Tolerance:
        """What the error ``terms`` of an output with reference ``value`` allow a device of this precision."""
        if not terms:
            return Tolerance(np.zeros(np.shape(value)), "bit-exact by specification", 0.0)
        allowed = self._bound(value, terms)
        if self.dtype != "float64" or self.rounding != "nearest":
            allowed = allowed + Precision("float64", "float64", "nearest", self.false_alarm_rate)._bound(value, terms)
        else:
            allowed = 2 * allowed
        length = max(term.length for term in terms)
        how = f"{self.dtype} in, {self.accumulate} partials"
        if self.rounding == "stochastic":
            how += ", stochastic rounding"
        return Tolerance(allowed, f"{how}, K={length}", self.false_alarm_rate)

    def _bound(self, value: Array, terms: Sequence[Term]) -> Array:
        size = np.abs(np.asarray(value, np.float64))
        allowed = np.zeros(np.shape(value))
        for term in terms:
            name = self.dtype if term.where == "store" else self.accumulate
            unit, confidence = 2 * term.ulps * self._unit(name), self._confidence(size.size, term.length)
            magnitude = np.abs(term.magnitude)
            error = magnitude * growth(unit, term.length, confidence)
            if term.spread is not None:
                partial = size + confidence * term.spread / 2
                error = np.minimum(
                    error, partial * probable(unit, term.length, confidence) + confidence * term.spread * unit
                )
            allowed = allowed + error + term.length * FORMATS[name].subnormal
        if self.accumulate != self.dtype and any(term.where == "accumulate" for term in terms):
            allowed = allowed + size * self._unit(self.dtype) + FORMATS[self.dtype].subnormal
        return allowed

    def _unit(self, name: str) -> float:
        """The largest relative error of one rounding."""
        return FORMATS[name].unit * (2.0 if self.rounding == "stochastic" else 1.0)

    def _confidence(self, elements: int, length: int) -> float:
        """The constant l for which ``elements`` sums of ``length`` roundings all hold, but for the false-alarm rate.

        Each sum may fail in each rounding, in a partial sum and in its products: three events for every rounding.
        """
        return math.sqrt(2.0 * math.log(2.0 * 3.0 * max(elements, 1) * length / self.false_alarm_rate))


def probable(unit: float, length: int, confidence: float) -> float:
    """The relative error that ``length`` independent roundings of at most ``unit`` rarely exceed."""
    return math.expm1(confidence * math.sqrt(length) * unit + length * unit**2 / (1.0 - unit))


def growth(unit: float, length: int, confidence: float) -> float:
    """The relative error after ``length`` roundings of at most ``unit`` each: certain or probable, what is smaller."""
    if length * unit >= 1.0:
        return probable(unit, length, confidence)
    certain = length * unit / (1.0 - length * unit) if length > 1 else unit
    return min(certain, probable(unit, length, confidence))
