"""Comparisons, of which some of the numbers are equal."""

from __future__ import annotations

from .op_test_ipu import Draw, case, forward, integers


def _few(*shape: int) -> Draw:
    return lambda chooser: integers(*shape, high=2)(chooser).astype(float)


OPS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
PADDLE_NAMES = {"less": "less_than", "greater": "greater_than"}
CASES = tuple(case(op, PADDLE_NAMES.get(op, op), _few(2, 3, 4), _few(3, 4)) for op in OPS)

test_forward = forward(CASES)
