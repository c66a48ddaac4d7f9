"""Arrays are compared by shape, dtype, what is not finite and value, and each failure is one sentence."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np

from ipu_conformance import check
from tests.unit.check.conftest import Reasoned, sentence
from tests.unit.examples import at_most


class TestIdentical:
    def test_the_same_bits_pass(self):
        """Equal arrays pass, NaN and infinities included."""
        values = np.array([1.5, np.nan, -np.inf], np.float32)

        check.identical(actual=values, expected=values.copy(), what="x")

    @pytest.mark.parametrize(
        ("actual", "expected", "words"),
        [
            pytest.param(
                np.ones((2, 3), np.float16),
                np.zeros((3, 2)),
                "has shape [2, 3] where [3, 2] is expected.",
                id="the shape, before dtype and values",
            ),
            pytest.param(
                np.ones(2, np.float16),
                np.zeros(2, np.float32),
                "has dtype float16 where float32 is expected.",
                id="the dtype, before values",
            ),
            pytest.param(
                np.array([[1.0, 2.0], [3.0, 4.5]]),
                np.array([[1.0, 2.25], [3.0, 4.0]]),
                "differs at [0, 1]: actual 2.0, expected 2.25; 2 of 4 values, largest difference 0.5, "
                "allowed 0 (bit-identical by specification).",
                id="the first place, both values, the count and the largest difference",
            ),
            pytest.param(
                np.array([-0.0]),
                np.array([0.0]),
                "differs at [0]: actual -0.0, expected 0.0; 1 of 1 value, only in the sign of zero, "
                "allowed 0 (bit-identical by specification).",
                id="the sign of zero",
            ),
            pytest.param(
                np.array([np.nan]),
                np.array([1.0]),
                "differs at [0]: actual nan, expected 1.0; 1 of 1 value, no finite difference, "
                "allowed 0 (bit-identical by specification).",
                id="NaN against a number",
            ),
            pytest.param(
                np.int32(3),
                np.int32(4),
                "differs at its only value: actual 3, expected 4; 1 of 1 value, largest difference 1, "
                "allowed 0 (bit-identical by specification).",
                id="a scalar without an index",
            ),
        ],
    )
    def test_a_difference_is_one_sentence(self, actual, expected, words):
        """The sentence tells what differs, where and by how much; a wrong shape or dtype comes first."""
        assert sentence(check.identical, actual=actual, expected=expected, what="fc1.weight") == f"fc1.weight {words}"

    def test_text_is_refused(self):
        """Only numbers can be compared."""
        with pytest.raises(TypeError, match=r"^x is an array of <U1, and only numbers can be compared$"):
            check.identical(actual=["a"], expected=["b"], what="x")

    @given(values=st_np.arrays(np.float32, 5), bit=st.integers(0, 31), place=st.integers(0, 4))
    @at_most(50)
    def test_one_flipped_bit_fails(self, values, bit, place):
        """Any single flipped bit is seen, except from one NaN to another."""
        flipped = values.copy()
        flipped.view(np.uint32)[place] ^= np.uint32(1 << bit)
        if np.isnan(flipped[place]) and np.isnan(values[place]):
            check.identical(actual=flipped, expected=values, what="x")
        else:
            with pytest.raises(check.CheckFailure):
                check.identical(actual=flipped, expected=values, what="x")


class TestClose:
    def test_differences_up_to_the_allowed_one_pass(self, half):
        """The boundary belongs to what is allowed."""
        check.close(actual=[1.5, 2.0], expected=[1.0, 2.0], tolerance=half, what="x")

    def test_a_list_and_a_float32_array_are_taken(self, half):
        """Anything that np.asarray takes is compared; precisions of one kind may differ."""
        check.close(actual=np.ones(2, np.float32), expected=[1.0, 1.0], tolerance=half, what="x")

    @pytest.mark.parametrize(
        ("actual", "expected", "tolerance", "words"),
        [
            pytest.param(
                [2.0, 15.0, 0.0],
                [1.0, 0.0, 0.0],
                Reasoned(np.array([0.1, 10.0, 10.0]), "float16 in, float32 partials, K=9"),
                "differs at [0]: actual 2.0, expected 1.0, difference 1, allowed 0.1 "
                "(float16 in, float32 partials, K=9); 2 of 3 values outside.",
                id="the largest multiple of what is allowed, not the largest difference",
            ),
            pytest.param(
                [1.0, 2.5],
                [1.0, 2.0],
                Reasoned(0.0, "bit-exact"),
                "differs at [1]: actual 2.5, expected 2.0, difference 0.5, allowed 0 (bit-exact); "
                "1 of 2 values outside.",
                id="nothing allowed, without dividing by it",
            ),
            pytest.param(
                [[1.0], [1.0]],
                [1.0, 1.0],
                Reasoned(0.5),
                "has shape [2, 1] where [2] is expected.",
                id="a shape that would broadcast",
            ),
            pytest.param(
                [1, 2],
                [1.0, 9.0],
                Reasoned(0.5),
                "has dtype int64 where a floating one is expected.",
                id="the kind of dtype, before values",
            ),
            pytest.param(
                [1, 3],
                [1, 2],
                Reasoned(0.5),
                "differs at [1]: actual 3, expected 2; 1 of 2 values, allowed 0 (an integer result is exact).",
                id="integers are exact",
            ),
            pytest.param(
                [True],
                [False],
                Reasoned(0.5),
                "differs at [0]: actual True, expected False; 1 of 1 value, allowed 0 (a boolean result is exact).",
                id="booleans are exact",
            ),
        ],
    )
    def test_a_difference_is_one_sentence(self, actual, expected, tolerance, words):
        """The sentence names the worst value, what is allowed and why."""
        message = sentence(check.close, actual=actual, expected=expected, tolerance=tolerance, what="output")

        assert message == f"output {words}"

    def test_an_exact_dtype_is_checked_when_given(self, half):
        """A specified dtype is compared exactly."""
        message = sentence(check.close, actual=[1.0], expected=[1.0], tolerance=half, what="x", dtype=np.float32)

        assert message == "x has dtype float64 where float32 is expected."

    @pytest.mark.parametrize("bare", [1e-5, 1, np.float32(0.1), None, np.ones(3)])
    def test_a_bare_number_is_refused(self, bare):
        """A tolerance that does not explain itself is a TypeError."""
        with pytest.raises(TypeError, match="never a bare number"):
            check.close(actual=[1.0], expected=[1.0], tolerance=bare, what="x")

    def test_nan_and_infinity_in_the_same_places_pass(self, half):
        """Where the specification has NaN or an infinity, the device has the same."""
        values = [np.nan, np.inf, -np.inf, 1.0]

        check.close(actual=values, expected=values, tolerance=half, what="x")

    @pytest.mark.parametrize(
        ("actual", "expected", "words"),
        [
            (np.nan, 1.0, "is nan at [1] where 1.0 is expected"),
            (1.0, np.nan, "is 1.0 at [1] where nan is expected"),
            (np.inf, 65504.0, "is inf at [1] where 65504.0 is expected"),
            (65504.0, np.inf, "is 65504.0 at [1] where inf is expected"),
            (np.inf, -np.inf, "is inf at [1] where -inf is expected"),
            (np.nan, np.inf, "is nan at [1] where inf is expected"),
        ],
    )
    def test_nan_and_infinity_elsewhere_fail(self, half, actual, expected, words):
        """A NaN or an infinity in a wrong place, or of a wrong sign, is its own sentence."""
        assert sentence(check.close, actual=[0.0, actual], expected=[0.0, expected], tolerance=half, what="x") == (
            f"x {words}; 1 of 2 values, allowed 0 (NaN and infinities must be where the specification has them, "
            "with its sign)."
        )

    def test_a_difference_everywhere_fails_on_average(self, reasoned):
        """Where a tolerance bounds the root mean square, small differences everywhere fail."""
        tolerance = reasoned(1.0, "8 rounded runs", allowed_rms=0.25)

        check.close(actual=[0.5, 0.0, 0.0, 0.0], expected=[0.0] * 4, tolerance=tolerance, what="x")
        assert sentence(check.close, actual=[0.5] * 4, expected=[0.0] * 4, tolerance=tolerance, what="x") == (
            "x differs on average: root mean square difference 0.5 over 4 values, allowed 0.25 (8 rounded runs)."
        )

    @pytest.mark.parametrize(
        ("allowed", "words"),
        [
            (np.ones(3), r"the tolerance of x has shape \[3\], not \[2\]"),
            (np.nan, "the tolerance of x is NaN or negative somewhere"),
            (-1.0, "the tolerance of x is NaN or negative somewhere"),
            (np.inf, "the tolerance of x allows everything"),
        ],
    )
    def test_a_tolerance_that_decides_nothing_is_refused(self, reasoned, allowed, words):
        """A misfit tolerance is misuse, not a pass and not a failure of the device."""
        with pytest.raises(check.CheckMisuseError, match=words):
            check.close(actual=[1.0, 1.0], expected=[1.0, 1.0], tolerance=reasoned(allowed), what="x")

    @given(
        expected=st_np.arrays(np.float64, 4, elements=st.floats(-1e3, 1e3)),
        place=st.integers(0, 3),
        excess=st.floats(0.01, 1e3),
        sign=st.sampled_from([-1, 1]),
    )
    @at_most(50)
    def test_any_value_outside_fails_at_its_place(self, expected, place, excess, sign):
        """Whatever the values, one beyond its tolerance fails and is the one that is named."""
        actual = expected.copy()
        actual[place] += sign * (0.5 + excess)

        message = sentence(check.close, actual=actual, expected=expected, tolerance=Reasoned(0.5), what="x")

        assert message.startswith(f"x differs at [{place}]: ")


def test_a_known_case_is_reproduced_in_the_second_line(half):
    """The command to run the case alone is there when the case is known, and only then."""
    token = check.current_case.set(check.CaseReference("replication/convnet[poptorch-D2-G3-R5]"))
    try:
        message = sentence(check.close, actual=[2.0], expected=[1.0], tolerance=half, what="x")
    finally:
        check.current_case.reset(token)

    assert message.splitlines()[1:] == ["reproduce: ipu-conformance case 'replication/convnet[poptorch-D2-G3-R5]'"]
    assert len(sentence(check.close, actual=[2.0], expected=[1.0], tolerance=half, what="x").splitlines()) == 1


def test_a_quote_in_a_case_id_stays_one_word_of_the_shell():
    """The command survives a shell even if the id has a quote in it."""
    import shlex

    case = check.CaseReference("odd/it's[1]")

    assert shlex.split(case.command()) == ["ipu-conformance", "case", "odd/it's[1]"]


def test_a_failure_is_an_assertion_whose_traceback_ends_in_the_test():
    """Frames of the checks hide themselves."""
    with pytest.raises(AssertionError) as caught:
        check.shape(actual=[1], expected=(2,), what="x")

    assert caught.traceback.filter(caught)[-1].name == "test_a_failure_is_an_assertion_whose_traceback_ends_in_the_test"
