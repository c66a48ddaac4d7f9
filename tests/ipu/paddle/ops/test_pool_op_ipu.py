"""Pools: the largest and the mean of windows, of bins, and of everything."""

from __future__ import annotations

from typing import Any, Dict

from .op_test_ipu import F, called, case, distinct, forward_and_gradient, values


def _max(paddle: Any, x: Any, kernel: Any, stride: Any, padding: Any, ceil_mode: bool) -> Any:
    pad = [low for low, _ in padding]
    return paddle.nn.functional.max_pool2d(x, list(kernel), list(stride), pad, ceil_mode=ceil_mode)


def _mean(paddle: Any, x: Any, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool) -> Any:
    pad = [low for low, _ in padding]
    exclusive = not count_include_pad
    return paddle.nn.functional.avg_pool2d(x, list(kernel), list(stride), pad, ceil_mode, exclusive)


WINDOWS: Dict[str, Any] = {"kernel": (2, 3), "stride": (1, 2), "padding": ((1, 1), (0, 0)), "ceil_mode": False}

CASES = (
    case("max_pool", _max, distinct(2, 3, 5, 6), **WINDOWS),
    case("avg_pool", _mean, values(2, 3, 5, 6), **WINDOWS, count_include_pad=True),
    case("avg_pool", _mean, values(2, 3, 5, 6), name="avg_pool-inside", **WINDOWS, count_include_pad=False),
    case("adaptive_avg_pool", called(F + "adaptive_avg_pool2d", "output_size"), values(2, 3, 6, 4), output_size=(3, 2)),
)

test_forward, test_gradient = forward_and_gradient(CASES)
