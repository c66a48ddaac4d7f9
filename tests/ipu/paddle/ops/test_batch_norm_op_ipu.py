"""Batch normalization, with the statistics of the micro-batch and with given ones."""

from __future__ import annotations

from typing import Any

from .op_test_ipu import case, forward_and_gradient, values


def _training(paddle: Any, x: Any, scale: Any, bias: Any, epsilon: float) -> Any:
    kept = [_statistic(paddle, value, x.shape[1]) for value in (0.0, 1.0)]
    return paddle.nn.functional.batch_norm(x, *kept, scale, bias, training=True, epsilon=epsilon)


def _statistic(paddle: Any, value: float, channels: int) -> Any:
    return paddle.static.create_global_var([channels], value, "float32", persistable=True)


def _inference(paddle: Any, x: Any, scale: Any, bias: Any, mean: Any, variance: Any, epsilon: float) -> Any:
    return paddle.nn.functional.batch_norm(x, mean, variance, scale, bias, epsilon=epsilon)


PARAMETERS = (values(3, low=0.5), values(3))

CASES = (
    case("batch_norm", _training, values(4, 3, 2, 5), *PARAMETERS, epsilon=2.0**-10),
    case("batch_norm", _training, values(6, 3), *PARAMETERS, name="batch_norm-vectors", epsilon=2.0**-12),
    case("batch_norm_inference", _inference, values(2, 3, 4), *PARAMETERS, values(3), values(3, low=0.25),
         epsilon=2.0**-10, differentiable=False),
)  # fmt: skip

test_forward, test_gradient = forward_and_gradient(CASES)
