"""Relu whose slope below zero is a weight."""

from __future__ import annotations

from .op_test_ipu import F, case, forward_and_gradient, values

CASES = (
    case("prelu", F + "prelu", values(2, 3, 4, avoid=[0.0]), values(1)),
    case("prelu", F + "prelu", values(2, 3, 4, 5, avoid=[0.0]), values(3), name="prelu-channels"),
)

test_forward, test_gradient = forward_and_gradient(CASES)
