"""A run is judged by a two-sided band whose false-alarm rate and power are what they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.oracle.convergence.band import ConvergenceError, ConvergenceMonitor, band, judge, left_out
from ipu_conformance.oracle.convergence.distributions import binomial_two_sided
from tests.unit.examples import at_most

stats = pytest.importorskip("scipy.stats")


def reference(seed: int = 0, seeds: int = 20, epochs: int = 3) -> list:
    """Values of seeds that rise by epoch."""
    random = np.random.default_rng(seed)
    return (0.7 + 0.05 * np.arange(epochs) + 0.01 * random.standard_normal((seeds, epochs))).tolist()


def test_the_band_is_students_prediction_interval():
    """Its limits are those that SciPy's quantile gives, with the rate shared by the epochs and both sides."""
    values = reference(epochs=2)
    column = np.array(values)[:, 1]
    width = stats.t.isf(0.01 / 4, 19) * column.std(ddof=1) * math.sqrt(1 / 5 + 1 / 20)

    row = band(values, false_alarm_rate=0.01, runs=5).epochs[1]

    # Both sides compute in float64: a mean and a deviation of 20 values, one quantile.
    assert math.isclose(row.low, column.mean() - width, rel_tol=1e-12)
    assert math.isclose(row.high, column.mean() + width, rel_tol=1e-12)


def test_the_false_alarm_rate_and_the_power_are_what_they_say():
    """Over 4,000 simulated baselines, a correct device fails and a shifted one is caught as often as stated.

    Counts are allowed where an exact binomial test does not reject them at one in a million.
    """
    random = np.random.default_rng(7)
    trials, seeds, rate = 4000, 20, 0.05
    example = band(random.standard_normal((seeds, 1)).tolist(), false_alarm_rate=rate)
    threshold_shift = _shift_in_sigmas(example, seeds)
    values = random.standard_normal((trials, seeds))
    mean, spread = values.mean(axis=1), values.std(axis=1, ddof=1)
    run = random.standard_normal(trials)
    half = stats.t.isf(rate / 2, seeds - 1) * spread * math.sqrt(1 + 1 / seeds)

    false_alarms = int((np.abs(run - mean) > half).sum())
    caught = int((np.abs(run + threshold_shift - mean) > half).sum())

    assert binomial_two_sided(false_alarms, trials, rate) > 1e-6
    assert binomial_two_sided(caught, trials, 0.95) > 1e-6


def _shift_in_sigmas(example, seeds: int) -> float:
    """The detectable shift over the standard deviation, which does not depend on the values."""
    row = example.epochs[0]
    spread = (row.high - row.mean) / (stats.t.isf(example.false_alarm_rate / 2, seeds - 1) * math.sqrt(1 + 1 / seeds))
    return row.detectable_shift / spread


@given(shift=st.floats(0.5, 100.0), side=st.sampled_from([-1, 1]), epoch=st.integers(1, 3))
@at_most(50)
def test_both_sides_fail_at_their_epoch(shift, side, epoch):
    """Too low and too high by any distance beyond the band fail, at the epoch where it happens."""
    allowed = band(reference())
    run = [row.mean for row in allowed.epochs]
    half = allowed.epochs[epoch - 1].high - allowed.epochs[epoch - 1].mean
    run[epoch - 1] += side * half * (1 + shift)

    verdict = judge(allowed, [run])

    assert (verdict.passed, verdict.epoch) == (False, epoch)
    assert ("too low" if side < 0 else "too high") in verdict.sentence


FLAT = [[float(value)] for value in range(20)]


def test_a_failure_is_one_sentence():
    """What, when, how much, what is allowed and why."""
    verdict = judge(band(FLAT), [[50.0]], metric="mnist's accuracy")

    assert verdict.sentence == (
        "mnist's accuracy is too high at epoch 1: 50, allowed -14.0419 to 33.0419 around 9.5 (Student's band of a run "
        "from 20 seeds, false-alarm rate 0.001 over 1 epoch); a shift of 35 is detected with 95% power."
    )


def test_a_pass_states_what_it_would_have_detected():
    """A pass says how much it means."""
    verdict = judge(band(FLAT, runs=2), [[9.0], [10.0]])

    assert verdict.passed
    assert verdict.sentence == (
        "the metric converges like the baseline: 9.5 at epoch 1, allowed -7.53837 to 26.5384 around 9.5 (Student's "
        "band of the mean of 2 runs from 20 seeds, false-alarm rate 0.001 over 1 epoch); a shift of 25.4 is detected "
        "with 95% power."
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_fails(value):
    """A run that diverges fails at once."""
    verdict = judge(band(FLAT), [[value]])

    assert not verdict.passed
    assert verdict.sentence.startswith(f"the metric is not finite at epoch 1: {value}, allowed")


def test_more_runs_detect_smaller_shifts():
    """The mean of four runs has a narrower band than one run."""
    one, four = band(FLAT).epochs[0], band(FLAT, runs=4).epochs[0]

    assert four.high - four.low < one.high - one.low
    assert four.detectable_shift < one.detectable_shift


class TestMonitor:
    def test_a_pass_is_certain_only_at_the_end(self):
        """Inside the band, every epoch counts."""
        allowed = band(reference())
        monitor = ConvergenceMonitor(allowed)

        verdicts = [monitor.update(row.epoch, row.mean) for row in allowed.epochs]

        assert verdicts[:2] == [None, None]
        assert verdicts[2].passed

    def test_a_failure_is_certain_at_once(self):
        """A run outside the band can stop: what follows cannot mend it."""
        monitor = ConvergenceMonitor(band(reference()))

        verdict = monitor.update(1, 0.1)

        assert (verdict.passed, verdict.epoch) == (False, 1)
        with pytest.raises(ConvergenceError, match="the verdict was certain at epoch 1; epoch 2 is too late"):
            monitor.update(2, 0.75)

    def test_epochs_come_in_order(self):
        """A skipped epoch is refused."""
        with pytest.raises(ConvergenceError, match="epoch 2 follows epoch 0; give every epoch once, from 1"):
            ConvergenceMonitor(band(reference())).update(2, 0.7)


def test_left_out_seeds_of_a_normal_baseline_lie_inside():
    """A baseline without outliers judges its own seeds right, one with an outlier does not."""
    values = reference()
    assert left_out(values) == 0
    values[4][1] = 5.0
    assert left_out(values) == 1


@pytest.mark.parametrize(
    ("values", "options", "words"),
    [
        (reference(seeds=19), {}, "the baseline has 19 seeds; it needs at least 20"),
        ([[]] * 20, {}, "row 0 of the baseline has 0 values"),
        ([[1.0]] * 19 + [[1.0, 2.0]], {}, "row 19 of the baseline has 2 values and row 0 has 1"),
        ([[1.0]] * 19 + [[math.nan]], {}, "row 19 of the baseline is nan at epoch 1; it must be finite"),
        ([[1.0]] * 20, {}, "every seed has the value 1 at epoch 1, which leaves no spread"),
        (reference(), {"false_alarm_rate": 0.0}, "the false-alarm rate is 0.0; it must lie between 0 and 1"),
        (reference(), {"power": 1.0}, "the power is 1.0; it must lie between 0 and 1"),
        (reference(), {"runs": 0}, "0 runs cannot be judged; give at least 1"),
    ],
)
def test_what_cannot_be_judged_by_is_refused(values, options, words):
    """A baseline that decides nothing is no baseline."""
    with pytest.raises(ConvergenceError, match=words):
        band(values, **options)


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([[0.7, 0.75]], "a run has 2 values, and the baseline has 3 epochs; give one for each"),
        ([], "0 runs are given to a band made for 1"),
    ],
)
def test_runs_that_do_not_fit_are_refused(runs, words):
    """A run has a value for each epoch of its baseline."""
    with pytest.raises(ConvergenceError, match=words):
        judge(band(reference()), runs)
