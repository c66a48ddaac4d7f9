"""Tensors side by side."""

from __future__ import annotations

from .op_test_ipu import case, forward_and_gradient, values

CASES = (
    case("concat", lambda p, *xs, axis: p.concat(list(xs), axis), values(2, 1, 4), values(2, 3, 4), axis=1),
    case("concat", lambda p, *xs, axis: p.concat(list(xs), axis), values(2, 3), values(2, 2), values(2, 1),
         name="concat-last", axis=-1),
)  # fmt: skip

test_forward, test_gradient = forward_and_gradient(CASES)
