"""Whole numbers as rows with one 1."""

from __future__ import annotations

from typing import Any

from .op_test_ipu import case, forward, integers


def _one_hot(paddle: Any, ids: Any, depth: int, on: float, off: float) -> Any:
    return paddle.nn.functional.one_hot(ids, depth)


CASES = (case("one_hot", _one_hot, integers(2, 3, high=4), modes=["IPU_FP32"], depth=5, on=1.0, off=0.0),)

test_forward = forward(CASES)
