"""Numbers at equal distances."""

from __future__ import annotations

import warnings
from typing import Any, Dict

import numpy as np
import pytest

from ..device import compiled

SPACES: Dict[str, Any] = {
    "up": (0.0, 1.0, 5, [0, 0.25, 0.5, 0.75, 1]),
    "down": (3.0, -1.0, 5, [3, 2, 1, 0, -1]),
    "one": (2.0, 5.0, 1, [2]),
}


@pytest.mark.parametrize("space", SPACES)
def test_numbers_at_equal_distances(paddle: Any, static: Any, space: str) -> None:
    """The first and the last number are those that were asked for, and the others lie evenly between."""
    start, stop, count, expected = SPACES[space]
    x = static.data("x", [1], "float32")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Paddle warns of an attribute that it sets itself
        out = x * paddle.linspace(start, stop, count)
    (got,) = compiled(paddle, [out], size=1).run(np.array([2], np.float32))

    assert got.tolist() == [2 * number for number in expected]
