"""Tensors one behind the other."""

from __future__ import annotations

from .op_test_ipu import case, forward_and_gradient, values

CASES = (
    case("stack", lambda p, *xs, axis: p.stack(list(xs), axis), values(2, 3), values(2, 3), axis=0),
    case("stack", lambda p, *xs, axis: p.stack(list(xs), axis), values(2, 3), values(2, 3), values(2, 3),
         name="stack-inner", axis=1),
)  # fmt: skip

test_forward, test_gradient = forward_and_gradient(CASES)
