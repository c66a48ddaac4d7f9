"""Tolerances of ops: what they allow, whom they catch and how they explain themselves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.oracle.op import OracleError, Term
from ipu_conformance.oracle.ops import OPS
from ipu_conformance.oracle.sample import Sample, SeededChooser, round_to
from ipu_conformance.oracle.tolerance import ops
from ipu_conformance.oracle.tolerance.ops import FORMATS, Precision, Tolerance, growth
from tests.unit.examples import at_most

K = 1600


def _rows(seed: int, count: int = 8) -> Sample:
    generator = np.random.default_rng(seed)
    return Sample((generator.uniform(-2, 2, (count, K)), generator.uniform(-2, 2, (1, K))))


def _device(sample: Sample, partials: str) -> np.ndarray:
    """The rows' dot products with float16 inputs, summed one by one in ``partials`` and stored as float16."""
    x, w = (value.astype(np.float16).astype(partials) for value in sample.inputs)
    total = np.zeros(len(x), partials)
    for step in range(K):
        total = (total + (x[:, step] * w[0, step]).astype(partials)).astype(partials)
    return total.astype(np.float16)[:, None]


def _allowed(sample: Sample, **precision: Any) -> Tolerance:
    return ops.for_op(OPS["linear"], sample, dtype="float16", **precision)


def _reference(sample: Sample) -> np.ndarray:
    return OPS["linear"].forward(*sample.rounded_to("float16").inputs)  # type: ignore[return-value]


@pytest.mark.parametrize("partials", ["float16", "float32"])
@at_most(10)
@given(seed=st.integers(0, 2**32 - 1))
def test_correct_device_stays_within_its_tolerance(partials, seed):
    """A dot product of length 1600 errs less than its derived tolerance, whatever the partials' type."""
    sample = _rows(seed)

    assert _allowed(sample, accumulate=partials).ratio(_device(sample, partials), _reference(sample)) < 1.0


def test_device_with_narrower_partials_is_caught():
    """Partial sums in float16 exceed what float32 partials allow."""
    sample = _rows(7)

    assert _allowed(sample, accumulate="float32").ratio(_device(sample, "float16"), _reference(sample)) > 4.0


def _rounded_at_random(value: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """``value`` rounded to one of its two float16 neighbours, with mean ``value``."""
    near = value.astype(np.float16)
    other = np.nextafter(near, np.where(near < value, np.inf, -np.inf).astype(np.float16))
    with np.errstate(invalid="ignore", divide="ignore"):
        chance = np.abs(value - near) / np.abs(other.astype(np.float64) - near)
    return np.where(generator.uniform(size=value.shape) < chance, other, near).astype(np.float64)


@at_most(5)
@given(seed=st.integers(0, 2**32 - 1))
def test_stochastic_rounding_stays_within_its_tolerance(seed):
    """Sums that are rounded at random to float16 after every step err less than the distributional bound."""
    sample, generator = _rows(seed), np.random.default_rng(seed)
    x, w = sample.rounded_to("float16").inputs
    total = np.zeros(len(x))
    for step in range(K):
        total = _rounded_at_random(total + _rounded_at_random(x[:, step] * w[0, step], generator), generator)
    allowed = _allowed(sample, accumulate="float16", rounding="stochastic")

    assert 1e-3 < allowed.ratio(total[:, None], _reference(sample)) < 1.0


@pytest.mark.parametrize("order", ["as drawn", "positive first", "ascending"])
def test_order_of_a_sum_does_not_matter(order):
    """Even sums whose order follows their values, which the bound does not assume, stay within the tolerance."""
    x, w = _rows(11).inputs
    products = x * w
    key = {"as drawn": np.zeros_like(x), "positive first": -np.sign(products), "ascending": products}[order]
    places = np.argsort(key, axis=1, kind="stable")
    for row in range(len(x)):
        sample = Sample((x[row : row + 1, places[row]], w[:, places[row]]))

        assert _allowed(sample, accumulate="float16").ratio(_device(sample, "float16"), _reference(sample)) < 1.0


def test_stochastic_rounding_is_allowed_twice_the_unit():
    """A single rounding at random may be off by a whole gap between numbers, to nearest by half of one."""
    sample = Sample((np.array([1.0]), np.array([1.0])))
    nearest, random = (
        ops.for_op(OPS["outer"], sample, dtype="float16", accumulate="float16", rounding=rounding).allowed
        for rounding in ("nearest", "stochastic")
    )
    own = 2.0**-53 + 2.0**-1074  # the reference's
    subnormal = FORMATS["float16"].subnormal

    assert nearest.item() == 2.0**-11 + subnormal + own
    assert random.item() == 2.0**-10 + subnormal + own


def test_tolerance_explains_itself():
    """The explanation names the types, the length of the reduction and the largest allowed error."""
    allowed = _allowed(_rows(0))

    assert allowed.explain() == f"float16 in, float32 partials, K=1600: {allowed.allowed.max():.1e}"
    assert allowed.false_alarm_rate == ops.FALSE_ALARM_RATE
    assert "stochastic rounding" in _allowed(_rows(0), rounding="stochastic").explain()


@pytest.mark.parametrize("name", ["relu", "max_pool", "transpose", "gather"])
def test_data_movement_is_bit_exact(name):
    """Ops that only move or select data are allowed no error at all."""
    allowed = ops.for_op(OPS[name], OPS[name].draw(SeededChooser(0)), dtype="float16")

    assert not allowed.allowed.any()
    assert allowed.explain() == "bit-exact by specification: 0"
    assert allowed.ratio(np.array([1.0, 2.0]), np.array([1.0, np.nextafter(2.0, 3.0)])) == math.inf


@pytest.mark.parametrize("name", sorted(OPS))
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_every_op_has_finite_tolerances(name, dtype):
    """Every output and gradient has an allowed error of its own shape: finite and not negative."""
    op = OPS[name]
    sample = op.draw(SeededChooser(5)).rounded_to(dtype)
    outputs = op.forward(*sample.inputs, **sample.attributes)
    values = outputs if isinstance(outputs, tuple) else (outputs,)
    limits = list(ops.for_outputs(op, sample, dtype=dtype))
    if op.vjp is not None:
        weights = tuple(np.ones(np.shape(value)) for value in values)
        gradients = op.vjp(weights if isinstance(outputs, tuple) else weights[0], *sample.inputs, **sample.attributes)
        found = ops.for_gradients(op, sample, weights if isinstance(outputs, tuple) else weights[0], dtype=dtype)
        pairs = [(value, limit) for value, limit in zip(gradients, found) if value is not None]
        values, limits = (*values, *(v for v, _ in pairs)), [*limits, *(limit for _, limit in pairs)]

    assert len(values) == len(limits)
    for value, limit in zip(values, limits):
        assert limit.allowed.shape == np.shape(value)
        assert np.all(np.isfinite(limit.allowed))
        assert np.all(limit.allowed >= 0)


@given(
    unit=st.sampled_from([form.unit for form in FORMATS.values()]),
    length=st.integers(1, 10**6),
    confidence=st.floats(1.0, 10.0),
)
def test_growth_is_at_least_one_rounding_and_rises_with_the_length(unit, length, confidence):
    """More roundings never err less, and never more than the certain bound says."""
    shorter, longer = growth(unit, length, confidence), growth(unit, length + 1, confidence)

    assert unit <= shorter <= longer
    if length * unit < 1:
        assert shorter <= length * unit / (1 - length * unit)


def test_probable_growth_is_that_of_higham_and_mary():
    """For a long sum the bound is exp(l sqrt(n) u + n u^2 / (1 - u)) - 1."""
    unit, length, confidence = 2.0**-11, 1024, 5.0

    assert growth(unit, length, confidence) == math.expm1(5.0 * 32.0 * unit + 1024 * unit**2 / (1 - unit))


def test_rarer_false_alarms_need_a_wider_tolerance():
    """The allowed error of a long sum rises as the accepted false-alarm rate falls."""
    strict, loose = (_allowed(_rows(0), accumulate="float16", false_alarm_rate=rate) for rate in (1e-2, 1e-9))

    assert np.all(strict.allowed < loose.allowed)


def test_underflow_is_allowed_for():
    """A product that underflows in float16 may be lost entirely."""
    sample = Sample((np.array([2.0**-14]), np.array([2.0**-12])))
    product = OPS["outer"].forward(*sample.inputs)
    allowed = ops.for_op(OPS["outer"], sample, dtype="float16", accumulate="float16")

    assert allowed.ratio(np.zeros((1, 1)), product) < 1.0  # type: ignore[arg-type]


def test_sum_stored_in_a_narrower_type_is_rounded_once_more():
    """A partial sum in float32 that is stored as float16 may differ by half a gap of float16."""
    value, terms = np.array([1.0]), [Term(np.array([1.0]), where="accumulate")]
    wide = Precision("float32", "float32").tolerance(value, terms).allowed
    narrow = Precision("float16", "float32").tolerance(value, terms).allowed

    assert narrow.item() == wide.item() + 2.0**-11 + 2.0**-24


@pytest.mark.parametrize(
    ("actual", "expected", "ratio"),
    [
        ([np.nan], [np.nan], 0.0),
        ([np.nan], [1.0], math.inf),
        ([1.0], [np.nan], math.inf),
        ([np.inf], [np.inf], 0.0),
        ([-np.inf], [np.inf], math.inf),
        ([1.25, 2.0], [1.0, 2.0], 0.5),
    ],
)
def test_ratio_handles_what_is_not_a_number(actual, expected, ratio):
    """NaN matches NaN, an infinity only itself, and numbers are measured by the allowed error."""
    assert Tolerance(np.full(len(actual), 0.5), "given", 0.0).ratio(np.array(actual), np.array(expected)) == ratio


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"dtype": "float8"}, "float8"),
        ({"accumulate": "int8"}, "int8"),
        ({"rounding": "up"}, "up"),
        ({"false_alarm_rate": 0.0}, "false-alarm"),
    ],
)
def test_unknown_precision_is_refused(wrong, word):
    """A format, a rounding or a rate that does not exist is named in the refusal."""
    with pytest.raises(OracleError, match=word):
        Precision(**{"dtype": "float16", "accumulate": "float32", **wrong})


def test_op_without_gradient_is_refused():
    """A tolerance for a gradient that does not exist cannot be asked for."""
    with pytest.raises(OracleError, match="argmax"):
        ops.for_gradients(OPS["argmax"], Sample((np.ones(3),)), np.ones(()))


def test_unknown_op_is_refused_with_the_names_that_exist():
    """Asking for an op that is not specified names those that are."""
    with pytest.raises(OracleError, match="conv_transpose"):
        OPS["convolute"]


@given(st.floats(-1e30, 1e30).filter(lambda x: abs(x) > 1e-30))
def test_bfloat16_keeps_eight_bits(x):
    """Rounding to bfloat16 errs by at most half a gap and is idempotent."""
    once = round_to("bfloat16", np.array([x]))

    assert abs(once.item() - x) <= (FORMATS["bfloat16"].unit + FORMATS["float32"].unit) * abs(x)
    assert round_to("bfloat16", once).item() == once.item()
