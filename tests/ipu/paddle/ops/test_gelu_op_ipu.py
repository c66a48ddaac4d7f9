"""Gelu, by the error function and by its approximation."""

from __future__ import annotations

from .op_test_ipu import F, case, forward_and_gradient, values

CASES = (
    case("gelu", F + "gelu", values(2, 3, 4)),
    case("gelu_tanh", lambda p, x: p.nn.functional.gelu(x, approximate=True), values(2, 3, 4)),
)

test_forward, test_gradient = forward_and_gradient(CASES)
