"""Reductions: rules for ties, zeros and axes that random samples do not show."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.oracle.op import Op
from ipu_conformance.oracle.ops import OPS
from tests.unit.examples import at_most
from tests.unit.oracle.ops.kinks import ask, forward, gradients
from tests.unit.oracle.ops.strategies import samples

REDUCTIONS = [op for op in OPS.values() if op.family == "reduction"]
TIED = np.array([[3.0, 1.0, 3.0], [1.0, 1.0, 1.0]])


@pytest.mark.parametrize("op", REDUCTIONS, ids=lambda op: op.name)
@given(data=st.data())
@at_most(10)
def test_kept_axes_change_the_shape_only(op: Op, data: st.DataObject) -> None:
    """With keepdims the reduced axes have length 1 and the values are the same."""
    sample = data.draw(samples(op))
    (x,), attributes = sample.inputs, {**sample.attributes, "keepdims": False}
    plain, kept = op.forward(x, **attributes), op.forward(x, **{**attributes, "keepdims": True})

    axis = sample.attributes["axis"]
    axes = range(x.ndim) if axis is None else [a % x.ndim for a in (axis if isinstance(axis, tuple) else (axis,))]
    assert kept.shape == tuple(1 if a in axes else size for a, size in enumerate(x.shape))
    np.testing.assert_array_equal(kept.ravel(), plain.ravel())


@pytest.mark.parametrize("name", ["min", "max"])
@pytest.mark.parametrize(
    ("witness", "ties", "axis"),
    [
        ("torch", "split", 1),
        ("torch", "split", None),
        ("torch", "first", 1),
        ("tensorflow", "split", 1),
        ("tensorflow", "split", None),
        ("paddle", "split", 1),
        ("paddle", "all", 1),
    ],
)
def test_gradient_of_equal_extremes_follows_the_framework(witness: str, ties: str, axis: int, name: str) -> None:
    """Equal extremes share the gradient, or the first has it, or each has it whole, as each framework's function."""
    found = ask(witness, name, TIED, axis=axis, keepdims=False, ties=ties)

    assert found.gradient is not None
    assert found.gradient < 1.0


def test_gradient_of_equal_extremes_by_each_rule() -> None:
    """Of [3, 1, 3], whose maximum is trained with 6, the rules give 3 0 3, 6 0 0 and 6 0 6."""
    shares = {"split": [3.0, 0.0, 3.0], "first": [6.0, 0.0, 0.0], "all": [6.0, 0.0, 6.0]}

    for ties, share in shares.items():
        (gradient,) = gradients("max", 6.0, TIED[0], ties=ties)
        np.testing.assert_array_equal(gradient, share)


@pytest.mark.parametrize("ties", ["split", "first", "all"])
def test_gradient_of_a_sole_extreme_is_exact(ties: str) -> None:
    """Without ties no rule divides, so nothing may be lost."""
    x, g = np.array([1.0, 3.0, 2.0]), np.array(6.0)
    error = OPS["max"].vjp_error
    assert error is not None

    assert error(gradients("max", g, x, ties=ties), g, x, ties=ties) == [[]]


@pytest.mark.parametrize("zeros", [1, 2])
@pytest.mark.parametrize("witness", ["torch", "tensorflow"])
def test_product_is_differentiable_at_zeros(witness: str, zeros: int) -> None:
    """The gradient of a product with zeros is the product of the others, not a division by zero."""
    x = np.array([2.0, 3.0, 5.0, 7.0])
    x[:zeros] = 0.0

    (gradient,) = gradients("prod", 1.0, x)
    np.testing.assert_array_equal(gradient, [105.0, 0.0, 0.0, 0.0] if zeros == 1 else [0.0] * 4)
    found = ask(witness, "prod", x, axis=None, keepdims=False)
    assert found.gradient is not None
    assert found.gradient < 1.0


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_norm_has_no_slope_at_zero(p: float) -> None:
    """A zero vector has norm 0 and gets the gradient 0, not NaN."""
    (gradient,) = gradients("p_norm", 1.0, np.zeros(3), p=p)

    assert forward("p_norm", np.zeros(3), p=p) == 0.0
    np.testing.assert_array_equal(gradient, np.zeros(3))


def test_logsumexp_does_not_overflow() -> None:
    """Inputs of a thousand, whose exponentials are infinite, have a finite result."""
    assert forward("logsumexp", np.array([1000.0, 1000.0])) == 1000.0 + np.log(2.0)


def test_variance_bound_grows_with_the_offset() -> None:
    """Values far from zero may have a less precise variance: the bound follows their condition."""
    x = np.linspace(-1.0, 1.0, 9)
    near, far = (OPS["var"].error(np.var(v), v)[0][0].magnitude for v in (x, x + 100.0))

    assert far > 50 * near
