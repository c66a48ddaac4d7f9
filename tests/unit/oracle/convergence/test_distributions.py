"""The distributions agree with SciPy's, far into the tails."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.oracle.convergence import distributions
from tests.unit.examples import at_most

stats = pytest.importorskip("scipy.stats")

EPSILON = sys.float_info.epsilon


def agree(actual: float, expected: float, size: float = 1.0) -> bool:
    """Two computations of one probability agree.

    Both take exp of a sum of log-gammas of arguments up to ``size``, so each is off by about size * log(size) * eps
    relative; 64 covers the few terms of either side.
    """
    return math.isclose(actual, expected, rel_tol=64 * EPSILON * max(1.0, size * math.log(size + 1.0)))


@given(n=st.integers(1, 20_000), p=st.floats(0.01, 0.99), share=st.floats(0.0, 1.0))
@at_most(80)
def test_binomial_tails_agree(n, p, share):
    """Both tails, at any count; below the smallest normal number digits are lost on either side."""
    k = round(share * n)

    for actual, expected in (
        (distributions.binomial_at_least(k, n, p), stats.binom.sf(k - 1, n, p)),
        (distributions.binomial_at_most(k, n, p), stats.binom.cdf(k, n, p)),
    ):
        assert agree(actual, float(expected), n) or max(actual, float(expected)) < 1e-290


@pytest.mark.parametrize(("k", "least", "most"), [(0, 1.0, 0.5**3), (3, 0.5**3, 1.0), (4, 0.0, 1.0), (-1, 1.0, 0.0)])
def test_binomial_tails_are_exact_at_the_ends(k, least, most):
    """All or nothing of three fair trials, and beyond."""
    assert agree(distributions.binomial_at_least(k, 3, 0.5), least)
    assert agree(distributions.binomial_at_most(k, 3, 0.5), most)


def test_the_two_sided_test_is_twice_the_smaller_tail():
    """And never above 1."""
    assert agree(distributions.binomial_two_sided(0, 4, 0.5), 2 * 0.5**4)
    assert distributions.binomial_two_sided(2, 4, 0.5) == 1.0


@given(freedom=st.floats(1.0, 1e4), exponent=st.floats(-14.0, -0.31))
@at_most(60)
def test_student_quantiles_agree(freedom, exponent):
    """SciPy's survival function at our quantile gives the probability back.

    A quantile's relative error is that of the probability over the slope of the tail, of at most ``freedom``.
    """
    probability = 10.0**exponent

    quantile = distributions.student_quantile_above(probability, freedom)

    assert agree(float(stats.t.sf(quantile, freedom)), probability, 16 * freedom)


def test_student_quantiles_are_symmetric():
    """A probability above one half has a negative quantile."""
    assert distributions.student_quantile_above(0.75, 5) == -distributions.student_quantile_above(0.25, 5)
    assert distributions.student_above(0.0, 5) == 0.5


@given(above=st.floats(1.0, 500.0), below=st.floats(1.0, 5000.0), exponent=st.floats(-12.0, -0.1))
@at_most(60)
def test_f_quantiles_agree(above, below, exponent):
    """SciPy's survival function at our quantile gives the probability back."""
    probability = 10.0**exponent

    quantile = distributions.f_quantile_above(probability, above, below)

    assert agree(float(stats.f.sf(quantile, above, below)), probability, 16 * (above + below))


@pytest.mark.parametrize("freedom", [3, 19, 49])
@pytest.mark.parametrize(("t", "shift"), [(0.5, 0.0), (3.5, 5.2), (4.6, 2.0), (2.0, -1.0)])
def test_the_non_central_t_agrees(freedom, t, shift):
    """The integral agrees with SciPy's series to the precision that is printed of a detectable shift."""
    printed = 1e-9
    with np.errstate(divide="ignore"):  # SciPy's own series divides by zero on its way to the right value
        reference = stats.nct.sf(t, freedom, shift)

    assert abs(distributions.noncentral_t_above(t, freedom, shift) - reference) < printed


def test_the_non_central_shift_has_its_power():
    """A device shifted so far exceeds the threshold with the stated probability."""
    shift = distributions.noncentral_shift(0.95, 3.6, 19)

    assert math.isclose(float(stats.nct.sf(3.6, 19, shift)), 0.95, rel_tol=1e-9)


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.1, float("nan")])
def test_impossible_probabilities_are_refused(probability):
    """A quantile needs a probability inside (0, 1)."""
    with pytest.raises(ValueError, match="it must lie between 0 and 1"):
        distributions.student_quantile_above(probability, 5)
