"""Diagonals of matrices, and matrices with a vector on a diagonal."""

from __future__ import annotations

from typing import Any

from .op_test_ipu import called, case, forward_and_gradient, values


def _embedded(paddle: Any, x: Any, offset: int) -> Any:
    stacked = paddle.unsqueeze(x, 0)
    return paddle.squeeze(paddle.nn.functional.diag_embed(stacked, offset), 0)


DIAG = called("diag", "offset")
"""Paddle stops gradients here, and in diag_embed."""

CASES = (
    case("diag", DIAG, values(4), name="diag-vector", offset=1, differentiable=False, declared=True),
    case("diag", DIAG, values(3, 5), name="diag-matrix", offset=-1, differentiable=False, declared=True),
    case("diag", _embedded, values(3), name="diag_embed", offset=-1, differentiable=False, declared=True),
    case("diag", called("diagonal", "offset"), values(3, 5), name="diagonal", offset=2, declared=True),
)

test_forward, test_gradient = forward_and_gradient(CASES)
