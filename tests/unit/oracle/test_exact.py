"""Exact arithmetic is exact: any order of summing gives the oracle's bits, and inexact numbers are refused."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from ipu_conformance.oracle import exact
from ipu_conformance.oracle.op import OracleError
from ipu_conformance.oracle.tolerance.runs import ArrayTolerance, RunTolerance, TwoRunTolerance
from ipu_conformance.run import RunConfig, learning_rate

CONFIG = RunConfig(learning_rate=learning_rate(base=2.0**-6))


def test_products_learn_as_rational_numbers_do():
    """Two updates over three micro-batches on two replicas are those of arithmetic without any rounding."""
    x = exact.pairs(12)
    record = exact.train(exact.products(), x, CONFIG.with_counts(2, 3, 2))

    weights = [Fraction(1), Fraction(-2)]
    for update in (x[:6], x[6:]):
        for feature, weight in enumerate(list(weights)):
            column = [Fraction(float(value)) for value in update[:, feature]]
            signs = [(value * weight > 1) - (value * weight < 1) for value in column]
            weights[feature] -= Fraction(1, 64) * sum(s * value for s, value in zip(signs, column)) / 6
    assert record.weights["w0"].tolist() == [float(weight) for weight in weights]


@pytest.mark.parametrize(
    ("problem", "samples"),
    [(exact.products(2), exact.pairs), (exact.scalar_products(3), exact.scalars), (exact.folds(3), exact.offsets)],
    ids=["products", "scalar_products", "folds"],
)
def test_every_problem_learns(problem, samples):
    """No weight of a problem stays where it begins, and every micro-batch has a loss."""
    record = exact.train(problem, samples(8), CONFIG.with_counts(1, 4, 2))

    assert all(not np.array_equal(record.weights[name], value) for name, value in problem.weights.items())
    assert record.losses[0].shape == (8,)


def test_what_float32_does_not_hold_is_refused():
    """A rate that is no power of two, and a mean over seven, round."""
    with pytest.raises(OracleError, match="is not exact in float32"):
        exact.train(exact.products(), exact.pairs(4), CONFIG.with_counts(4, learning_rate=learning_rate(base=0.1)))
    with pytest.raises(OracleError, match="not exact"):
        exact.train(exact.products(), exact.pairs(7), CONFIG.with_counts(1, 7))
    with pytest.raises(OracleError, match="not exact"):
        exact.float32(0.1)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_step_of_the_regression_goes_down_its_gradient(reduction):
    """The weight moves against the central difference of the loss, reduced or summed."""
    x, y, step = exact.regression_samples(4), exact.regression_targets(4), 2.0**-10

    def loss(weight):
        return exact.regression_step(weight, x, y, reduction=reduction).loss.sum()

    start = exact.REGRESSION_START
    slopes = [(loss(start + step * unit) - loss(start - step * unit)) / (2 * step) for unit in np.eye(2)]
    moved = exact.regression_step(start, x, y, rate=1.0, reduction=reduction).weight
    # The loss is a square of dyadic numbers: its central difference is the gradient, and nothing is rounded.
    np.testing.assert_array_equal(start - moved, slopes)


def test_two_runs_may_be_twice_as_far_apart():
    """A tolerance between two runs doubles every bound and says so."""
    each = ArrayTolerance(np.array([1.0, 2.0]), 0.5, "why")
    both = TwoRunTolerance(RunTolerance((each,), (), {"w": each}, (), {}, 1e-6, 8))

    assert both.losses[0].allowed.tolist() == [2.0, 4.0]
    assert both.weights["w"].allowed_rms == 1.0
    assert both.weights["w"].explain() == "twice, for two runs, why"
