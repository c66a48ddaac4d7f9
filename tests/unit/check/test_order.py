"""Outputs belong to their micro-batches, and what is out of order, dropped or repeated is named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance import check
from tests.unit.check.conftest import Reasoned
from tests.unit.examples import at_most

TIGHT = Reasoned(0.25, "quarter")


def batches(number: int) -> np.ndarray:
    """One distinct row for each micro-batch."""
    return np.arange(2.0 * number).reshape(number, 2)


def sentence(actual, number: int = 6, **arguments) -> str:
    """The message for outputs that should be those of ``number`` micro-batches."""
    with pytest.raises(check.CheckFailure) as caught:
        check.outputs_in_order(actual=actual, expected=batches(number), tolerance=TIGHT, what="the output", **arguments)
    return str(caught.value)


def test_outputs_in_order_pass():
    """Each within the tolerance of its own micro-batch."""
    check.outputs_in_order(actual=batches(6) + 0.2, expected=batches(6), tolerance=TIGHT, what="x")


def test_a_swap_is_named():
    """The first displaced output and whose it is."""
    assert sentence(batches(6)[[0, 1, 2, 5, 4, 3]]) == (
        "the output is in the wrong order: output 3 is micro-batch 5, 2 of 6 are displaced."
    )


def test_a_transposition_of_the_factors_is_recognised():
    """[accumulation, device iteration] instead of [device iteration, accumulation] is called so."""
    wrong = batches(6).reshape(2, 3, 2).transpose(1, 0, 2).reshape(6, 2)

    assert sentence(wrong, factors={"device iteration": 2, "accumulation": 3}) == (
        "the output is in the wrong order: output 1 is micro-batch 3, 4 of 6 are displaced; looks transposed: "
        "[accumulation, device iteration] instead of [device iteration, accumulation]."
    )


@given(axes=st.permutations([0, 1, 2]).filter(lambda axes: axes != [0, 1, 2]))
@at_most(20)
def test_every_transposition_of_three_factors_is_recognised(axes):
    """Whatever the wrong order of three different factors, it is the one that is named."""
    factors = {"device iteration": 2, "accumulation": 3, "replica": 5}
    wrong = batches(30).reshape(2, 3, 5, 2).transpose(*axes, 3).reshape(30, 2)

    message = sentence(wrong, 30, factors=factors)

    assert f"looks transposed: [{', '.join(list(factors)[axis] for axis in axes)}] instead of" in message


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ([5, 4, 3, 2, 1, 0], "; looks reversed."),
        ([5, 0, 1, 2, 3, 4], "; looks rotated: 1 late."),
        ([2, 3, 4, 5, 0, 1], "; looks rotated: 2 early."),
        ([1, 0, 2, 3, 5, 4], "are displaced."),
    ],
)
def test_simple_patterns_are_recognised(order, words):
    """Reversal and rotation have names; anything else is only a permutation."""
    assert sentence(batches(6)[order]).endswith(words)


@given(order=st.permutations(range(5)))
@at_most(50)
def test_only_the_identity_passes(order):
    """Any other permutation fails and names its first displaced output."""
    if order == list(range(5)):
        check.outputs_in_order(actual=batches(5)[order], expected=batches(5), tolerance=TIGHT, what="the output")
    else:
        place = next(i for i in range(5) if order[i] != i)
        assert f"output {place} is micro-batch {order[place]}," in sentence(batches(5)[order], 5)


def test_a_repeated_and_a_dropped_micro_batch_are_named():
    """Which one is there twice, where, and which is missing."""
    assert sentence(batches(6)[[0, 1, 2, 2, 4, 5]]) == (
        "the output has 6 outputs for 6 micro-batches: micro-batch 2 is there 2 times (outputs 2 and 3), "
        "micro-batch 3 missing."
    )


def test_too_few_outputs_name_what_is_missing():
    """A shorter list is explained by the micro-batches it lacks."""
    assert sentence(batches(6)[[0, 2, 4]]) == (
        "the output has 3 outputs for 6 micro-batches: micro-batches 1, 3 and 5 missing."
    )


def test_long_lists_are_cut():
    """Only the first few are named."""
    assert sentence(batches(9)[:1], 9) == (
        "the output has 1 outputs for 9 micro-batches: micro-batches 1, 2, 3, 4 and 4 more missing."
    )


def test_an_output_of_no_micro_batch_is_a_wrong_value():
    """What is not a question of order is compared value by value."""
    wrong = batches(6)
    wrong[4, 1] = 100.0

    assert sentence(wrong) == (
        "the output differs at [4, 1]: actual 100.0, expected 9.0, difference 91, allowed 0.25 (quarter); "
        "1 of 12 values outside."
    )


def test_a_wrong_shape_of_one_output_is_a_shape_failure():
    """The shape of an output is compared first."""
    assert sentence(np.zeros((6, 3))) == "the output has shape [6, 3] where [6, 2] is expected."


def test_equal_micro_batches_are_refused():
    """An order that cannot be seen cannot be checked."""
    same = np.zeros((3, 2))
    same[0] = 7

    with pytest.raises(check.CheckMisuseError, match="micro-batches 1 and 2 of x are equal within the tolerance"):
        check.outputs_in_order(actual=same, expected=same, tolerance=TIGHT, what="x")


@pytest.mark.parametrize("expected", [np.float64(1.0), np.ones((1, 2))])
def test_one_micro_batch_is_refused(expected):
    """One output has no order."""
    with pytest.raises(check.CheckMisuseError, match="an order needs at least 2 micro-batches"):
        check.outputs_in_order(actual=expected, expected=expected, tolerance=TIGHT, what="x")


def test_factors_that_do_not_fit_are_refused():
    """The factors multiply to the number of micro-batches."""
    with pytest.raises(check.CheckMisuseError, match="do not multiply to its 6 micro-batches"):
        check.outputs_in_order(
            actual=batches(6), expected=batches(6), tolerance=TIGHT, what="x", factors={"replica": 4}
        )


class TestMicroBatchesOnce:
    def test_any_order_passes(self):
        """Each once is all that is asked."""
        check.micro_batches_once(seen=[2, 0, 1], expected=range(3))

    @pytest.mark.parametrize(
        ("seen", "words"),
        [
            ([0, 1, 3], "the run drops micro-batch 2: each of 4 is used once by specification."),
            ([0, 0, 0, 1, 2, 3], "the run repeats micro-batch 0 (3 times): each of 4 is used once by specification."),
            (
                [0, 1, 1, 9],
                "the run drops micro-batches 2 and 3 and repeats micro-batch 1 (2 times) and uses the unknown "
                "micro-batch 9: each of 4 is used once by specification.",
            ),
        ],
    )
    def test_dropped_repeated_and_unknown_are_named(self, seen, words):
        """Every kind of fault is in the sentence."""
        with pytest.raises(check.CheckFailure) as caught:
            check.micro_batches_once(seen=seen, expected=range(4))

        assert str(caught.value) == words

    @pytest.mark.parametrize(("expected", "words"), [([], "no micro-batches are expected"), ([1, 1], "expected twice")])
    def test_what_cannot_fail_is_refused(self, expected, words):
        """Nothing, or the same twice, is not to be checked."""
        with pytest.raises(check.CheckMisuseError, match=words):
            check.micro_batches_once(seen=[1], expected=expected)
