"""Normalization over the last dimensions."""

from __future__ import annotations

from typing import Any

from .op_test_ipu import case, forward_and_gradient, values


def _layer(paddle: Any, x: Any, scale: Any, bias: Any, axes: int, epsilon: float) -> Any:
    return paddle.nn.functional.layer_norm(x, x.shape[-axes:], scale.reshape([-1]), bias.reshape([-1]), epsilon)


CASES = (
    case("layer_norm", _layer, values(2, 3, 8), values(8, low=0.5), values(8), axes=1, epsilon=2.0**-10),
    case("layer_norm", _layer, values(2, 3, 4), values(3, 4, low=0.5), values(3, 4), name="layer_norm-two", axes=2,
         epsilon=2.0**-12),
)  # fmt: skip

test_forward, test_gradient = forward_and_gradient(CASES)
