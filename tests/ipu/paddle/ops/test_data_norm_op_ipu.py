"""The norm by statistics over all data that were seen before."""

from __future__ import annotations

from typing import Any

from .op_test_ipu import case, forward_and_gradient, values


def _data_norm(paddle: Any, x: Any, size: float, total: float, squares: float) -> Any:
    start = {"batch_size": size, "batch_sum": total, "batch_square": squares}
    return paddle.static.nn.data_norm(x, param_attr=start)


CASES = (case("data_norm", _data_norm, values(3, 4), size=16.0, total=-6.0, squares=40.0),)

test_forward, test_gradient = forward_and_gradient(CASES)
