"""Rows that are written over others, or added up."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..device import compiled
from .op_test_ipu import case, forward_and_gradient, permuted, values

CASES = (case("scatter", "scatter", values(5, 3), permuted(3, of=5), values(3, 3), declared=True),)

test_forward, test_gradient = forward_and_gradient(CASES)


def test_rows_that_meet_are_added_up(paddle: Any, static: Any) -> None:
    """Without overwriting, a row that is named is emptied and gets the sum of what is written to it."""
    x = static.data("x", [4, 2], "float32")
    index, updates = static.data("index", [3], "int64"), static.data("updates", [3, 2], "float32")
    out = paddle.scatter(x, index, updates, overwrite=False)
    rows = np.array([[1, 2], [4, 8], [16, 32]], np.float32)
    device = compiled(paddle, [out], feeds=["x", "index", "updates"])
    (got,) = device.run(np.arange(8, dtype=np.float32).reshape(4, 2), np.array([2, 0, 2]), rows)

    assert got.tolist() == [[4, 8], [2, 3], [17, 34], [6, 7]]
