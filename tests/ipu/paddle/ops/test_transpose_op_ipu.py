"""Dimensions and values in another order."""

from __future__ import annotations

from .op_test_ipu import F, called, case, forward_and_gradient, values

CASES = (
    case("transpose", called("transpose", "axes"), values(2, 3, 4), axes=(2, 0, 1)),
    case("flip", called("flip", "axis"), values(2, 3, 4), axis=(0, 2)),
    case("roll", called("roll", "shift", "axis"), values(2, 3, 5), shift=(2,), axis=(2,)),
    case("pixel_shuffle", called(F + "pixel_shuffle", "block"), values(2, 8, 3, 4), block=2, order="CRD"),
)

test_forward, test_gradient = forward_and_gradient(CASES)
