"""One of two values."""

from __future__ import annotations

from .op_test_ipu import case, forward_and_gradient, truths, values

CASES = (case("where", "where", truths(2, 3, 4), values(2, 3, 4), values(2, 3, 4)),)

test_forward, test_gradient = forward_and_gradient(CASES)
