"""Normalization over groups of channels."""

from __future__ import annotations

from typing import Any

from .op_test_ipu import FLOAT32, case, forward_and_gradient, values


def _group(paddle: Any, x: Any, scale: Any, bias: Any, groups: int, epsilon: float) -> Any:
    layer = paddle.nn.GroupNorm(groups, x.shape[1], epsilon, weight_attr=False, bias_attr=False)
    shape = [-1, *(1 for _ in x.shape[2:])]
    return layer(x) * scale.reshape(shape) + bias.reshape(shape)


CASES = (
    case("group_norm", _group, values(2, 6, 4, 5), values(6, low=0.5), values(6), groups=3, epsilon=2.0**-10,
         modes=FLOAT32),
)  # fmt: skip

test_forward, test_gradient = forward_and_gradient(CASES)
