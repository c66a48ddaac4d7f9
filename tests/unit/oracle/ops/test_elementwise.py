"""Element-wise conventions where frameworks differ, at the points that random samples avoid."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from ipu_conformance.oracle.ops import OPS
from ipu_conformance.oracle.ops.arithmetic.pointwise import broadcastable
from ipu_conformance.oracle.sample import Chooser
from tests.unit.examples import at_most
from tests.unit.oracle.ops.kinks import ask, forward, gradients
from tests.unit.oracle.ops.strategies import choosers

EQUAL = np.array([1.5, -2.0, 0.25])


@given(chooser=choosers())
@at_most(30)
def test_gradient_of_add_counts_how_often_an_element_is_used(chooser: Chooser) -> None:
    """An operand of a sum gets a gradient of its own shape that counts the results each element went into."""
    shapes = broadcastable(chooser, 2)
    full = np.broadcast_shapes(*shapes)
    found = gradients("add", np.ones(full), *(np.zeros(shape) for shape in shapes))

    for shape, gradient in zip(shapes, found):
        np.testing.assert_array_equal(gradient, np.full(shape, np.prod(full) / np.prod(shape)))


def test_floored_remainder_has_the_sign_of_the_divisor() -> None:
    """-7 over 3 leaves 2 when the quotient is rounded down, and 7 over -3 leaves -2."""
    a, b = np.array([7.0, -7.0, 7.0, -7.0]), np.array([3.0, 3.0, -3.0, -3.0])

    np.testing.assert_array_equal(forward("floor_mod", a, b), [1.0, 2.0, -2.0, -1.0])
    np.testing.assert_array_equal(forward("floor_div", a, b), [2.0, -3.0, -3.0, 2.0])


def test_truncated_remainder_has_the_sign_of_the_dividend() -> None:
    """-7 over 3 leaves -1 when the quotient is rounded towards zero."""
    a, b = np.array([7.0, -7.0, 7.0, -7.0]), np.array([3.0, 3.0, -3.0, -3.0])

    np.testing.assert_array_equal(forward("trunc_mod", a, b), [1.0, -1.0, 1.0, -1.0])
    np.testing.assert_array_equal(forward("trunc_div", a, b), [2.0, -2.0, -2.0, 2.0])


@pytest.mark.parametrize("name", ["floor_mod", "trunc_mod", "floor_div", "trunc_div"])
@pytest.mark.parametrize("witness", ["torch", "tensorflow"])
def test_division_agrees_on_whole_quotients(witness: str, name: str) -> None:
    """On exact multiples, where a quotient is a step, torch and TensorFlow have the same outputs."""
    a, b = np.array([6.0, -6.0, 6.0, -6.0, 7.0]), np.array([3.0, 3.0, -3.0, -3.0, 2.0])

    assert ask(witness, name, a, b).forward == 0.0


@pytest.mark.parametrize("witness", ["torch", "tensorflow"])
def test_round_takes_halves_to_even(witness: str) -> None:
    """Halves are rounded to the even neighbour."""
    halves = np.arange(-3.5, 4.0)

    np.testing.assert_array_equal(forward("round", halves), [-4, -2, -2, 0, 0, 2, 2, 4])
    assert ask(witness, "round", halves).forward == 0.0


@pytest.mark.parametrize("name", ["maximum", "minimum"])
@pytest.mark.parametrize(("witness", "ties"), [("torch", "half"), ("tensorflow", "first"), ("paddle", "second")])
def test_gradient_of_a_tie_follows_the_framework(witness: str, ties: str, name: str) -> None:
    """Equal operands share the gradient in torch; TensorFlow gives it to the first and Paddle to the second."""
    assert ask(witness, name, EQUAL, EQUAL, ties=ties).gradient == 0.0


def test_gradient_of_a_tie_is_whole() -> None:
    """Under every rule for ties the two gradients add up to the cotangent."""
    cotangent = np.array([1.0, -3.0, 0.5])
    for name in ("maximum", "minimum"):
        for ties in ("half", "first", "second"):
            first, second = gradients(name, cotangent, EQUAL, EQUAL, ties=ties)

            np.testing.assert_array_equal(first + second, cotangent)


@pytest.mark.parametrize("witness", ["torch", "tensorflow"])
def test_clip_passes_the_gradient_on_its_borders(witness: str) -> None:
    """A value on a border of clip is trained like one inside."""
    assert ask(witness, "clip", np.array([-1.0, 0.5, 0.0, 2.0]), low=-1.0, high=0.5).gradient == 0.0


@pytest.mark.parametrize("witness", ["torch", "tensorflow", "paddle"])
@pytest.mark.parametrize("name", ["abs", "sign"])
def test_absolute_value_has_no_slope_at_zero(witness: str, name: str) -> None:
    """The subgradient of abs at 0 is 0, and the sign of 0 is 0."""
    found = ask(witness, name, np.array([0.0, -0.0, 1.0]))

    assert (found.forward, found.gradient) == (0.0, 0.0)


@pytest.mark.parametrize("name", ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"])
def test_comparison_with_nan_is_false_but_for_not_equal(name: str) -> None:
    """NaN is neither less nor greater than, nor equal to anything."""
    assert forward(name, np.array([np.nan]), np.array([np.nan]))[0] == (name == "not_equal")


def test_comparisons_have_no_gradient() -> None:
    """Of the comparison family only ``where`` is differentiable."""
    assert [op.name for op in OPS.values() if op.family == "compare" and op.vjp is not None] == ["where"]
