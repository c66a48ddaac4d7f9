"""Normalization of each channel of each sample."""

from __future__ import annotations

from typing import Any

from .op_test_ipu import case, forward_and_gradient, values


def _instance(paddle: Any, x: Any, scale: Any, bias: Any, epsilon: float) -> Any:
    return paddle.nn.functional.instance_norm(x, weight=scale, bias=bias, eps=epsilon)


CASES = (case("instance_norm", _instance, values(2, 3, 4, 5), values(3, low=0.5), values(3), epsilon=2.0**-10),)

test_forward, test_gradient = forward_and_gradient(CASES)
