"""Comparisons, of which some of the numbers are equal."""

from __future__ import annotations

from .op_test_ipu import Draw, case, forward, integers


def _few(*shape: int) -> Draw:
    return lambda chooser: integers(*shape, high=2)(chooser).astype(float)


PADDLE_NAMES = {
    "equal": "equal",
    "not_equal": "not_equal",
    "less": "less_than",
    "less_equal": "less_equal",
    "greater": "greater_than",
    "greater_equal": "greater_equal",
}
CASES = tuple(case(op, called, _few(2, 3, 4), _few(3, 4)) for op, called in PADDLE_NAMES.items())

test_forward = forward(CASES)
