"""The bounds that tracked numbers carry hold for the same steps in float32, and for none that is wrong."""

from __future__ import annotations

from typing import Any, Callable, Dict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.oracle.ops import tracked
from ipu_conformance.oracle.ops.tracked import Tracked
from ipu_conformance.oracle.tolerance.ops import FORMATS
from tests.unit.examples import at_most

UNIT = FORMATS["float32"].unit

STEPS: Dict[str, Callable[..., Any]] = {
    "sum": lambda a, b: a + b,
    "difference": lambda a, b: 0.75 - a - b,
    "product": lambda a, b: a * b * 0.3,
    "quotient": lambda a, b: a / (b * b + 1.0),
    "matrices": lambda a, b: a @ b.T @ a,
    "all": lambda a, b: (a * b).sum(0) + (a + b).sum(),
    "mixed": lambda a, b: (a - b) * (a + b) - (a * a) + (b * b),
}
FUNCTIONS: Dict[str, Any] = {
    "sigmoid": (tracked.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "tanh": (tracked.tanh, np.tanh),
    "exp": (tracked.exp, np.exp),
}


def _pair(seed: int) -> Any:
    draw = np.random.default_rng(seed)
    return [draw.uniform(-2, 2, (3, 3)).astype(np.float32) for _ in range(2)]


@pytest.mark.parametrize("name", STEPS)
@at_most(20)
@given(seed=st.integers(0, 2**32 - 1))
def test_steps_in_float32_stay_within_the_bound(name, seed):
    """No float32 result is further from the exact one than its bound, which is of the size of what is rounded."""
    a, b = _pair(seed)
    found = STEPS[name](Tracked(a), Tracked(b))
    rounded = STEPS[name](a, b)

    assert rounded.dtype == np.float32
    assert np.all(np.abs(rounded - found.value) <= found.error * UNIT * (1 + 64 * UNIT))
    assert np.all(found.error < 1000)


@pytest.mark.parametrize("name", FUNCTIONS)
@at_most(20)
@given(seed=st.integers(0, 2**32 - 1))
def test_functions_pass_on_what_their_argument_lost(name, seed):
    """A function of a rounded sum is within its bound, which grows with that of the sum."""
    ours, plain = FUNCTIONS[name]
    a, b = _pair(seed)
    exact, found = ours(Tracked(a)), ours(Tracked(a) + Tracked(b) * 100.0 - Tracked(b) * 100.0)
    rounded = plain(a + b * np.float32(100) - b * np.float32(100))

    assert np.all(np.abs(rounded - found.value) <= found.error * UNIT * (1 + 64 * UNIT))
    assert np.all(found.error > exact.error)


def test_choices_and_moves_lose_nothing():
    """Numbers that are only moved or chosen keep their bound."""
    x = Tracked(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.5, 0.25], [0.0, 1.0]]))
    parts = [x[0], x[1]]

    assert tracked.stacked(parts).error.tolist() == x.error.tolist()
    assert tracked.joined(parts).error.tolist() == [0.5, 0.25, 0.0, 1.0]
    assert x.T.reshape(4).error.tolist() == [0.5, 0.0, 0.25, 1.0]
    assert x.where(x.value > 2, 7.0).value.tolist() == [[7.0, 7.0], [3.0, 4.0]]
    assert x.where(x.value > 2, 7.0).error.tolist() == [[0.0, 0.0], [0.0, 1.0]]
    assert (-x).error.tolist() == x.error.tolist()
