"""The sum of several tensors."""

from __future__ import annotations

from .op_test_ipu import case, forward_and_gradient, values

CASES = (case("add", lambda p, *xs: p.add_n(list(xs)), values(2, 3, 4), values(2, 3, 4), name="add_n"),)

test_forward, test_gradient = forward_and_gradient(CASES)
