"""Tensors that are cut into several."""

from __future__ import annotations

from .op_test_ipu import called, case, forward_and_gradient, values

CASES = (
    case("split", called("split", "sizes", "axis"), values(2, 6, 3), sizes=(1, 3, 2), axis=1),
    case("unstack", "unstack", values(2, 3, 4), axis=1),
)

test_forward, test_gradient = forward_and_gradient(CASES)
