"""Softmax and its logarithm, along the last and along another dimension."""

from __future__ import annotations

from .op_test_ipu import F, case, forward_and_gradient, values

CASES = (
    case("softmax", F + "softmax", values(2, 3, 5), axis=-1),
    case("softmax", F + "softmax", values(2, 3, 5), name="softmax-inner", axis=1),
    case("log_softmax", F + "log_softmax", values(2, 3, 5), axis=-1),
    case("log_softmax", F + "log_softmax", values(2, 3, 5), name="log_softmax-inner", axis=1),
)

test_forward, test_gradient = forward_and_gradient(CASES)
