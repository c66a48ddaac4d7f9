"""Dropout is checked as values and as a distribution, with exact tests that state their false-alarm rate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance import check
from tests.unit.examples import at_most

AXES = ("replica", "step")


def masks(seed: int = 0, rate: float = 0.5, shape=(3, 4, 500)) -> np.ndarray:
    """Independent masks; True is kept."""
    return np.random.default_rng(seed).random(shape) >= rate


def sentence(values, rate: float = 0.5, axes=AXES) -> str:
    """The message for wrong masks."""
    with pytest.raises(check.CheckFailure) as caught:
        check.dropout_masks(masks=values, rate=rate, axes=axes, what="drop1")
    return str(caught.value)


class TestMasks:
    @given(seed=st.integers(0, 2**32 - 1), rate=st.sampled_from([0.1, 0.25, 0.5, 0.9]))
    @at_most(30)
    def test_independent_masks_pass(self, seed, rate):
        """Correct masks pass at any rate; the false-alarm rate is one in a million."""
        check.dropout_masks(masks=masks(seed, rate), rate=rate, axes=AXES, what="drop1")

    def test_the_stated_false_alarm_rate_is_not_exceeded(self):
        """At a rate of 5 % for the whole check, correct masks fail no more often than that.

        The bound is where a correct check would exceed it once in a million: the exact binomial tail of 300 trials.
        """
        from ipu_conformance.oracle.convergence.distributions import binomial_at_least

        failures = 0
        for seed in range(300):
            try:
                check.dropout_masks(
                    masks=masks(seed, 0.3, (2, 2, 60)), rate=0.3, axes=AXES, what="x", false_alarm_rate=0.05
                )
            except check.CheckFailure:
                failures += 1

        assert binomial_at_least(failures, 300, 0.05) > 1e-6

    def test_equal_masks_on_two_replicas_are_called_the_same(self):
        """One stream of random numbers on every replica is the commonest mistake."""
        values = masks()
        values[1] = values[0]

        assert sentence(values) == (
            "drop1 is the same on (replica 0, step 0) and (replica 1, step 0), by equal positions: 500 of 500, "
            "250 expected, a chance of 6.1e-151, allowed 8.6e-10 (exact binomial test, false-alarm rate 1e-06 over "
            "1164 comparisons)."
        )

    def test_equal_masks_on_two_steps_are_called_the_same(self):
        """A seed that is not advanced repeats its mask."""
        values = masks()
        values[2, 3] = values[2, 1]

        assert sentence(values).startswith("drop1 is the same on (replica 2, step 1) and (replica 2, step 3), by")

    def test_opposite_masks_are_not_independent(self):
        """A mask that is the inverse of another knows of it."""
        values = masks()
        values[1, 1] = ~values[0, 0]

        assert "is not independent on (replica 0, step 0) and (replica 1, step 1), by equal positions: 0 of 500" in (
            sentence(values)
        )

    def test_partly_equal_masks_are_not_independent(self):
        """Two masks that share most of their positions fail too."""
        values = masks()
        values[1, 0, :350] = values[0, 0, :350]

        assert "is not independent on (replica 0, step 0) and (replica 1, step 0)" in sentence(values)

    def test_a_wrong_rate_is_seen_over_all_masks(self):
        """A rate that is off by a fifth shows in the total."""
        assert sentence(masks(rate=0.4), rate=0.5).startswith("drop1 drops at a wrong rate in all: 2400 of 6000, 3000")

    def test_a_wrong_rate_on_one_mask_is_placed(self):
        """A step on which nothing is dropped is named."""
        values = masks(shape=(3, 4, 100))
        values[1, 2] = True
        values[1, 3] = False  # so that the total is right

        assert sentence(values).startswith("drop1 drops at a wrong rate on (replica 1, step 2): 0 of 100, 50 expected")

    @pytest.mark.parametrize("lag", [1, 2, 3, 4, 8, 16])
    def test_repeated_positions_are_seen(self, lag):
        """Random numbers that are used twice within a mask, some positions apart, are not independent."""
        values = np.random.default_rng(1).random((2, 40, 1, lag)) >= 0.5
        twice = np.concatenate([values, values], axis=2).reshape(2, -1)
        # A mask of its own for the other step, so that only one step is wrong.
        twice[1] = np.random.default_rng(2).random(twice[1].shape) >= 0.5

        message = sentence(twice, axes=("step",))

        assert message.startswith(f"drop1 is not independent between positions {lag} apart on (step 0), by equal pairs")

    def test_samples_that_share_a_mask_are_seen(self):
        """One row of random numbers for all samples of a micro-batch is not independent from row to row."""
        values = np.repeat(np.random.default_rng(3).random((2, 1, 60)) >= 0.5, 5, axis=1)
        values[1] = np.random.default_rng(4).random((5, 60)) >= 0.5

        assert sentence(values, axes=("step",)).startswith(
            "drop1 is not independent between positions 60 apart on (step 0), by equal pairs: 120 of 120"
        )

    def test_a_second_half_like_the_first_is_seen(self):
        """A mask that begins again in its middle is not independent."""
        half = np.random.default_rng(5).random(70) >= 0.5
        values = np.stack([np.concatenate([half, half]), np.random.default_rng(6).random(140) >= 0.5])

        assert sentence(values, axes=("step",)).startswith(
            "drop1 is not independent between positions 70 apart on (step 0), by equal pairs: 70 of 70"
        )

    def test_a_share_that_is_always_met_is_seen(self):
        """Masks that drop exactly half of their positions each are not made position by position."""
        draw = np.random.default_rng(7)
        values = np.stack([draw.permutation(np.arange(200) % 2 == 0) for _ in range(16)])

        assert sentence(values, axes=("step",)).startswith(
            "drop1 drops equally many values in two masks, by pairs of masks: 8 of 8, 0.319 expected"
        )

    def test_a_position_that_is_never_dropped_is_seen(self):
        """A position that is kept in every mask is named."""
        values = masks(shape=(8, 8, 50))
        values[:, :, 7] = True

        assert sentence(values).startswith("drop1 drops at a wrong rate at position 7 over all masks: 0 of 64")

    def test_masks_too_small_to_fail_are_refused(self):
        """Where even equal masks would pass, the check says so."""
        with pytest.raises(check.CheckMisuseError, match="drop1 has masks of 10 positions, too few"):
            check.dropout_masks(masks=masks(shape=(2, 2, 10)), rate=0.5, axes=AXES, what="drop1")

    @pytest.mark.parametrize("rate", [0.0, 1.0, -1.0, float("nan")])
    def test_a_rate_without_randomness_is_refused(self, rate):
        """At 0 and 1 there is nothing random to check."""
        with pytest.raises(check.CheckMisuseError, match="the dropout rate is"):
            check.dropout_masks(masks=masks(), rate=rate, axes=AXES, what="drop1")

    @pytest.mark.parametrize(
        ("shape", "words"), [((3, 4), "has 2 axes, 2 of them"), ((3, 4, 0), "has masks of no positions")]
    )
    def test_masks_without_positions_are_refused(self, shape, words):
        """There must be something to look at."""
        with pytest.raises(check.CheckMisuseError, match=words):
            check.dropout_masks(masks=np.ones(shape, bool), rate=0.5, axes=AXES, what="drop1")


class TestValues:
    def test_the_mask_is_returned(self, reasoned):
        """Kept values are scaled by 1 / (1 - rate), the others are 0."""
        inputs = np.array([1.0, 2.0, 3.0])

        mask = check.dropout_values(
            actual=[4.0, 0.0, 12.0], inputs=inputs, rate=0.75, tolerance=reasoned(0.0), what="drop1"
        )

        assert mask.tolist() == [True, False, True]

    def test_an_unscaled_value_is_named(self, reasoned):
        """A kept value that is not scaled fails."""
        with pytest.raises(check.CheckFailure) as caught:
            check.dropout_values(
                actual=[0.0, 2.0], inputs=[1.0, 2.0], rate=0.5, tolerance=reasoned(0.125, "one ulp"), what="drop1"
            )

        assert str(caught.value) == (
            "drop1 is 2.0 at [1] where dropout of 0.5 gives 0 or 4.0 (input / (1 - rate)), allowed 0.12 (one ulp); "
            "1 of 2 values."
        )

    def test_shape_comes_first(self, reasoned):
        """Dropout keeps the shape."""
        with pytest.raises(check.CheckFailure, match=r"^drop1 has shape \[1\] where \[2\] is expected\.$"):
            check.dropout_values(actual=[0.0], inputs=[1.0, 2.0], rate=0.5, tolerance=reasoned(0.0), what="drop1")

    def test_an_input_of_zero_is_refused(self, reasoned):
        """A dropped zero looks like a kept one."""
        with pytest.raises(check.CheckMisuseError, match="its mask cannot be seen"):
            check.dropout_values(actual=[0.0], inputs=[0.0], rate=0.5, tolerance=reasoned(0.0), what="drop1")
