"""Rows of a table by their numbers."""

from __future__ import annotations

from .op_test_ipu import F, case, forward_and_gradient, integers, values

INPUTS = (integers(2, 5, high=3), values(4, 3))

CASES = (
    case("embedding", F + "embedding", *INPUTS, declared=True),
    case("embedding", F + "embedding", *INPUTS, name="embedding-padding", declared=True, padding_idx=2),
)

test_forward, test_gradient = forward_and_gradient(CASES)
