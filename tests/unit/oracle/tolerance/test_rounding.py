"""Random rounding leaves what is exact, keeps the mean and errs as much as a device of its precision."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np

from ipu_conformance import nets
from ipu_conformance.oracle.op import OracleError
from ipu_conformance.oracle.tolerance.rounding import RandomRounding, mantissa, nearest, spacing, stochastic
from ipu_conformance.run import RunConfig
from tests.unit.examples import at_most

FORMATS = {"float32": np.float32, "float16": np.float16}


@pytest.mark.parametrize("dtype", FORMATS)
@given(data=st.data())
@at_most(60)
def test_nearest_is_the_cast(dtype, data):
    """Rounding to nearest gives what NumPy's cast gives, subnormals and overflow included."""
    values = data.draw(st_np.arrays(np.float64, 6, elements=st.floats(-1e6, 1e6)))

    with np.errstate(over="ignore"):
        expected = values.astype(FORMATS[dtype]).astype(np.float64)

    np.testing.assert_array_equal(nearest(values, mantissa(dtype)), expected)


@pytest.mark.parametrize("dtype", FORMATS)
@given(data=st.data())
@at_most(60)
def test_stochastic_rounding_gives_a_neighbour(dtype, data):
    """The result is in the format, less than a spacing away, and exact values do not move."""
    values = data.draw(st_np.arrays(np.float64, 6, elements=st.floats(-6e4, 6e4)))
    form = mantissa(dtype)

    rounded = stochastic(values, form, np.random.default_rng(0))

    np.testing.assert_array_equal(rounded, rounded.astype(FORMATS[dtype]).astype(np.float64))
    assert (np.abs(rounded - values) < spacing(values, form)).all()
    np.testing.assert_array_equal(stochastic(rounded, form, np.random.default_rng(1)), rounded)


def test_stochastic_rounding_keeps_the_mean():
    """The number of values rounded up is binomial with the fraction as its probability."""
    from ipu_conformance.oracle.convergence.distributions import binomial_two_sided

    form, trials = mantissa("float16"), 20_000
    values = np.full(trials, 1.0 + 0.3 * 2.0**-10)

    up = int((stochastic(values, form, np.random.default_rng(5)) > 1.0).sum())

    assert binomial_two_sided(up, trials, 0.3) > 1e-6


def test_a_matrix_product_errs_as_a_device_does():
    """At a site with a reduction the modelled error is that of a float32 product summed one term after the other.

    The model takes partial sums for a random walk with logarithmically distributed ends; a quarter covers what real
    ones differ by, and is well inside what the quantiles of a tolerance leave room for.
    """
    net, config = nets.residual(), RunConfig()
    random = np.random.default_rng(3)
    inputs, weights = random.standard_normal((400, 75)), random.standard_normal((75, 5))
    exact = inputs.astype(np.float32).astype(np.float64) @ weights.astype(np.float32).astype(np.float64)
    device = np.cumsum(
        inputs.astype(np.float32)[:, :, None] * weights.astype(np.float32)[None], axis=1, dtype=np.float32
    )[:, -1]

    modelled = RandomRounding(net, config, seed=0)(exact, "forward/fc1") - exact

    ratio = math.sqrt(float(np.mean(modelled**2) / np.mean((device - exact) ** 2)))
    assert 0.75 <= ratio <= 1.25


def test_a_value_without_reduction_is_only_stored():
    """Elsewhere the error is that of one rounding."""
    values = np.random.default_rng(4).standard_normal(1000)
    form = mantissa("float32")

    rounded = RandomRounding(nets.residual(), RunConfig(), seed=0)(values, "forward/act1")

    assert (np.abs(rounded - values) < spacing(values, form)).all()


def test_exact_zeros_stay_zero():
    """A dead unit has no noise."""
    rounded = RandomRounding(nets.residual(), RunConfig(), seed=0)(np.array([0.0, 1.0, 0.0]), "forward/fc1")

    assert rounded[[0, 2]].tolist() == [0.0, 0.0]


def test_an_unknown_format_is_refused():
    """Only formats that a run can have."""
    with pytest.raises(OracleError, match="dtype 'int8' has no random rounding; use one of float32, float16"):
        mantissa("int8")
