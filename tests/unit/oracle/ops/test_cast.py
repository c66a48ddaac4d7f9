"""Casts: fractions, narrowing, truth, and where a gradient passes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.oracle.op import OracleError
from ipu_conformance.oracle.sample import Sample
from tests.unit.oracle.installed import installed
from tests.unit.oracle.ops.kinks import forward, gradients
from tests.unit.oracle.witnesses import WITNESSES


@given(value=st.floats(-1e4, 1e4))
def test_float_to_integer_drops_the_fraction(value: float) -> None:
    """The result is the integer next to the value on the side of zero."""
    whole = forward("cast", [value], dtype="int32")[0]

    assert abs(whole) <= abs(value) < abs(whole) + 1
    assert whole * value >= 0


def test_integers_are_narrowed_to_their_low_bits() -> None:
    """300 becomes 44 in a byte; 200 becomes negative in a signed one."""
    assert forward("cast", [300, 200], dtype="uint8").tolist() == [44, 200]
    assert forward("cast", [300, 200], dtype="int8").tolist() == [44, -56]


def test_floats_are_rounded_with_halves_to_even() -> None:
    """2049 and 2051 lie between float16 numbers; beyond 65520 is infinity."""
    assert forward("cast", [2049.0, 2051.0, 65520.0], dtype="float16").tolist() == [2048.0, 2052.0, np.inf]


def test_everything_but_zero_is_true() -> None:
    """NaN and the smallest number are true, both zeros are false."""
    assert forward("cast", [0.0, -0.0, 5e-324, np.nan], dtype="bool").tolist() == [False, False, True, True]


@pytest.mark.parametrize("value", [200.0, -129.0, np.nan, np.inf])
def test_a_float_outside_the_range_has_no_specified_integer(value: float) -> None:
    """The oracle refuses it instead of choosing one framework's result."""
    with pytest.raises(OracleError, match="a cast to int8 is specified from -128 to 127"):
        forward("cast", [value], dtype="int8")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("witness", ["torch", "tensorflow"])
def test_gradient_passes_between_floats(witness: str, dtype: str) -> None:
    """The gradient of a rounding is the cotangent, as if it were the identity."""
    installed(witness)
    x, cotangent = np.array([0.1, 0.2]), np.array([1.5, -2.0])  # a cotangent that float16 holds
    (ours,) = gradients("cast", cotangent, x, dtype=dtype)
    (theirs,) = WITNESSES[witness].gradients("cast", Sample((x,), {"dtype": dtype}), [cotangent])

    np.testing.assert_array_equal(ours, cotangent)
    np.testing.assert_array_equal(theirs, cotangent)


def test_no_gradient_passes_through_an_integer() -> None:
    """A float cast to an integer, and an integer cast to a float, have no gradient."""
    assert gradients("cast", [1.0], [0.5], dtype="int32") == [None]
    assert gradients("cast", [1.0], [1], dtype="float64") == [None]
