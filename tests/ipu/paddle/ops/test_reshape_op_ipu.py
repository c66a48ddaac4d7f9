"""The same values in another shape."""

from __future__ import annotations

from .op_test_ipu import case, forward_and_gradient, values

CASES = (
    case("reshape", "reshape", values(2, 3, 4), shape=(4, 6)),
    case("squeeze", "squeeze", values(2, 1, 4, 1), axis=(1, 3)),
    case("unsqueeze", "unsqueeze", values(2, 3), axis=(1,)),
)

test_forward, test_gradient = forward_and_gradient(CASES)
