"""Products of matrices."""

from __future__ import annotations

from typing import Any

from .op_test_ipu import case, forward_and_gradient, values


def _matmul(paddle: Any, a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False) -> Any:
    return paddle.matmul(a, b, transpose_x=transpose_a, transpose_y=transpose_b)


CASES = (
    case("matmul", _matmul, values(3, 5), values(5, 4)),
    case("matmul", _matmul, values(5, 3), values(4, 5), name="matmul-turned", transpose_a=True, transpose_b=True),
    case("matmul", _matmul, values(2, 3, 5), values(2, 5, 4), name="matmul-stacks"),
    case("bmm", lambda p, a, b: p.bmm(a, b), values(2, 3, 5), values(2, 5, 4)),
    case("outer", "outer", values(3), values(4)),
)

test_forward, test_gradient = forward_and_gradient(CASES)
