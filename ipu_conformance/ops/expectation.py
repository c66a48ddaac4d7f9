"""What the oracle expects of a call, edge by edge: a range for every element, and how far a device may be outside.

Away from edges the range is one number. At an edge it spans what is specified:

- a denormal number may be taken for zero, as an input and as a result;
- where the exact result is beyond the largest number, the result may be infinite or that number, and NaN in float16,
  which has a mode for it;
- at a kink or a tie the gradient is any between those on the two sides;
- where the exact result is NaN, the result is;
- what a vendor's document allows besides is allowed (``ops.latitude``).

Gradients at infinities and NaN are promised by nobody and are not asked for. A gradient beyond the root of the largest
number is open too: devices form gradients from squares and from products that overflow before the result does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.ops.dtypes import FORMATS
from ipu_conformance.ops.latitude import latitudes
from ipu_conformance.ops.row import LIBRARIES, Row
from ipu_conformance.ops.sampling import is_pointwise
from ipu_conformance.ops.variants import SPECIAL
from ipu_conformance.oracle.op import Array, Outputs, Term, as_tuple
from ipu_conformance.oracle.sample import Sample, round_to
from ipu_conformance.oracle.tolerance.ops import ACCUMULATE, Precision, Tolerance

WITHOUT_GRADIENT = ("infinities", "nan", "bits", "empty")
SELECTING = ("max", "min", "sort", "topk")
"""Ops that hand a gradient on to the elements they select: which of equal ones gets it is open, the sum is not."""
ROUNDED_PARTIALS = ("prod",)
"""Ops whose partial results may be rounded to the element type: nobody promises a wider one for products."""
NUDGE = 2.0**-12
LARGEST_ULPS = 16.0
"""The largest error that is documented of any function, for limits at infinity, where no error model speaks."""


def has_gradient(row: Row, framework: str, dtype: str, edge: str) -> bool:
    """Whether there is a gradient to ask for."""
    known = row.op.vjp is not None and LIBRARIES[framework] not in row.without_gradient
    return known and dtype in FORMATS and edge not in WITHOUT_GRADIENT


@dataclass(frozen=True)
class Expected:
    """The range of every element of one array, within a tolerance; ``nan`` is true where NaN is expected or allowed."""

    low: Array
    high: Array
    nan: Array
    tolerance: Tolerance

    @property
    def single(self) -> bool:
        """Whether every element has one expected number and none is NaN."""
        return not self.nan.any() and bool(np.array_equal(self.low, self.high))


def outputs(row: Row, sample: Sample, dtype: str, edge: str, framework: str) -> Tuple[Expected, ...]:
    """What is expected of each output on a framework."""
    op = row.op
    with np.errstate(all="ignore"):
        values = as_tuple(op.forward(*sample.inputs, **sample.attributes))
        candidates = [list(map(np.asarray, values))]
        for latitude in latitudes(row.name, framework, "forward", edge):
            assert latitude.outputs is not None
            candidates += [list(as_tuple(each)) for each in latitude.outputs(op, sample, dtype)]
        if edge == "denormals":
            flushed = _flushed(sample, dtype)
            candidates.append(list(as_tuple(op.forward(*flushed.inputs, **flushed.attributes))))
        terms = op.error(values if len(values) > 1 else values[0], *sample.inputs, **sample.attributes)
    limits = [_tolerance(row, value, each, dtype, edge) for value, each in zip(values, terms)]
    return tuple(_expected([each[place] for each in candidates], limit, dtype) for place, limit in enumerate(limits))


def gradients(
    row: Row, samples: Sequence[Sample], cotangents: Sequence[Outputs], dtype: str, edge: str, framework: str
) -> List[Optional[Expected]]:
    """What is expected of the sum over the micro-batches of each input's gradient; None where there is none."""
    by_micro_batch = [
        _gradients_of(row, sample, held, dtype, edge, framework) for sample, held in zip(samples, cotangents)
    ]
    places = range(len(by_micro_batch[0]))
    return [_sum([each[place] for each in by_micro_batch], dtype) for place in places]


def _gradients_of(
    row: Row, sample: Sample, cotangents: Outputs, dtype: str, edge: str, framework: str
) -> List[Optional[Expected]]:
    op = row.op
    assert op.vjp is not None
    assert op.vjp_error is not None
    with np.errstate(all="ignore"):
        candidates = [op.vjp(cotangents, *each.inputs, **each.attributes) for each in _sides(row, sample, dtype, edge)]
        for latitude in latitudes(row.name, framework, "gradient", edge):
            assert latitude.gradients is not None
            others = list(latitude.gradients(op, cotangents, sample, dtype))
            candidates = others if latitude.alone else [*candidates, *others]
        pulled = candidates[0]
        terms = op.vjp_error(pulled, cotangents, *sample.inputs, **sample.attributes)
    limits = [
        None if value is None else _tolerance(row, value, each, dtype, edge) for value, each in zip(pulled, terms)
    ]
    return [
        None
        if limit is None
        else _opened(_expected([np.asarray(each[place]) for each in candidates], limit, dtype), dtype)
        for place, limit in enumerate(limits)
    ]


def _opened(expected: Expected, dtype: str) -> Expected:
    """The same with elements open whose size is beyond the root of the largest number."""
    most = float(FORMATS[dtype].max) ** 0.5
    with np.errstate(invalid="ignore"):
        ordinary = (np.abs(expected.low) <= most) & (np.abs(expected.high) <= most)
    if ordinary.all():
        return expected
    low, high = np.where(ordinary, expected.low, -np.inf), np.where(ordinary, expected.high, np.inf)
    tolerance = expected.tolerance
    allowed = np.where(ordinary, tolerance.allowed, 0.0)
    return Expected(
        low, high, ~ordinary | expected.nan, Tolerance(allowed, tolerance.origin, tolerance.false_alarm_rate)
    )


def _sides(row: Row, sample: Sample, dtype: str, edge: str) -> List[Sample]:
    """The samples whose gradients a device may return: at an edge, also those beside it."""
    if edge not in ("zeros", "ties", "denormals") and not (edge == "large" and row.name in ("maximum", "minimum")):
        return [sample]
    places = [place for place, x in enumerate(sample.inputs) if x.dtype.kind == "f"]
    at = _flushed(sample, dtype) if edge == "denormals" else sample
    nudged = [sample, at]
    for place in places if is_pointwise(row.op) else places[:1]:
        for step in (NUDGE, -NUDGE):
            inputs = list(at.inputs)
            inputs[place] = inputs[place] + step * np.maximum(np.abs(inputs[place]), 1.0)
            nudged.append(Sample(tuple(inputs), sample.attributes))
    return nudged


def _flushed(sample: Sample, dtype: str) -> Sample:
    """The sample with denormal numbers taken for zeros of their sign."""
    tiny = float(FORMATS[dtype].tiny)
    inputs = tuple(
        np.where(np.abs(x) < tiny, np.copysign(0.0, x), x) if x.dtype.kind == "f" else x for x in sample.inputs
    )
    return Sample(inputs, sample.attributes)


def _tolerance(row: Row, value: Array, terms: Sequence[Term], dtype: str, edge: str) -> Tolerance:
    """What the error model allows, with room for what a device may do besides.

    In float16 a device may make several ops of one, each of which stores its result: two more roundings of all that is
    added. At special numbers there is room for what vanishes: a denormal number, or a share far below the last place.
    """
    kind = dtype if dtype in FORMATS else "float32"
    with np.errstate(all="ignore"):
        stored = [Term(sum(np.abs(term.magnitude) for term in terms), length=2)] if kind == "float16" else []
        precision = Precision(kind, kind if row.name in ROUNDED_PARTIALS else ACCUMULATE[kind])
        tolerance = precision.tolerance(value, [*terms, *stored] if terms else [])
    if edge not in SPECIAL or (edge != "denormals" and not terms):
        return tolerance
    vanishing = float(FORMATS[kind].tiny) + float(FORMATS[kind].eps) ** 2
    return Tolerance(tolerance.allowed + vanishing, tolerance.origin, tolerance.false_alarm_rate)


def _expected(candidates: Sequence[Array], tolerance: Tolerance, dtype: str) -> Expected:
    values = np.stack([np.asarray(candidate) for candidate in candidates])
    if values.dtype.kind != "f":
        low, high = values.min(axis=0), values.max(axis=0)
        return Expected(low, high, np.zeros(low.shape, bool), tolerance)
    if not np.any(tolerance.allowed):
        values = np.stack([round_to(dtype, value) for value in values])
    limits = FORMATS.get(dtype, FORMATS["float32"])
    largest, tiny = float(limits.max), float(limits.tiny)
    nan = np.isnan(values).any(axis=0)
    low = np.where(np.isnan(values), np.inf, values).min(axis=0)
    high = np.where(np.isnan(values), -np.inf, values).max(axis=0)
    only = np.isnan(values).all(axis=0)
    low, high = np.where(only, np.nan, low), np.where(only, np.nan, high)
    # A denormal result may be flushed.
    low = np.where((low > 0) & (low < tiny), 0.0, low)
    high = np.where((high < 0) & (high > -tiny), 0.0, high)
    # Beyond the largest number: that number, an infinity, or NaN where the type has a mode for it.
    beyond = np.isfinite(values).any(axis=0) & ((np.abs(low) > largest) | (np.abs(high) > largest))
    low = np.where(beyond & (low > largest), largest, np.where(beyond & (low < -largest), -np.inf, low))
    high = np.where(beyond & (high < -largest), -largest, np.where(beyond & (high > largest), np.inf, high))
    if dtype == "float16":
        nan = nan | beyond
    return Expected(low, high, nan, _finite(tolerance, low, high, dtype))


def _finite(tolerance: Tolerance, low: Array, high: Array, dtype: str) -> Tolerance:
    """The tolerance with a bound for limits at infinity, where the magnitudes of the error model are not finite."""
    allowed = np.broadcast_to(np.asarray(tolerance.allowed, np.float64), low.shape)
    bad = ~np.isfinite(allowed)
    if not bad.any():
        return tolerance
    bounds = np.abs([low, high])
    largest = np.max(np.where(bounds < float(FORMATS[dtype].max), bounds, 0.0), initial=0.0)
    size = np.full(low.shape, largest)
    precision = Precision(dtype, ACCUMULATE[dtype])
    limit = precision.tolerance(size, [Term(size, ulps=LARGEST_ULPS)])
    return Tolerance(np.where(bad, limit.allowed, allowed), tolerance.origin, tolerance.false_alarm_rate)


def _sum(terms: Sequence[Optional[Expected]], dtype: str) -> Optional[Expected]:
    """The sum over micro-batches, kept in ``dtype``: their tolerances, and a rounding for each addition."""
    known = [term for term in terms if term is not None]
    if len(known) < len(terms):
        return None
    with np.errstate(invalid="ignore"):
        low, high = np.sum([term.low for term in known], axis=0), np.sum([term.high for term in known], axis=0)
        size = sum(np.maximum(np.abs(term.low), np.abs(term.high)) for term in known)
    size = np.where(np.isfinite(size), size, 0.0)
    added = Precision(dtype, ACCUMULATE[dtype]).tolerance(size, [Term(size, length=len(known) - 1)])
    allowed = sum(np.asarray(term.tolerance.allowed) for term in known) + added.allowed
    origin = f"{known[0].tolerance.origin}, sum of {len(known)} in {dtype}"
    nan = np.any([term.nan for term in known], axis=0) | np.isnan(low) | np.isnan(high)
    return Expected(low, high, nan, Tolerance(allowed, origin, known[0].tolerance.false_alarm_rate))
