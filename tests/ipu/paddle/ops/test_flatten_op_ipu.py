"""Dimensions that are merged."""

from __future__ import annotations

from .op_test_ipu import called, case, forward_and_gradient, values

CASES = (
    case("flatten", called("flatten", "start", "stop"), values(2, 3, 4, 5), start=1, stop=3),
    case("flatten", called("flatten", "start", "stop"), values(2, 3, 4, 5), name="flatten-inner",
         start=1, stop=2),
)  # fmt: skip

test_forward, test_gradient = forward_and_gradient(CASES)
