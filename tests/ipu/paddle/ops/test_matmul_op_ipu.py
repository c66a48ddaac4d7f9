"""Products of matrices."""

from __future__ import annotations

from .op_test_ipu import called, case, forward_and_gradient, values

MATMUL = called("matmul", transpose_x="transpose_a", transpose_y="transpose_b")

CASES = (
    case("matmul", MATMUL, values(3, 5), values(5, 4)),
    case("matmul", MATMUL, values(5, 3), values(4, 5), name="matmul-turned", transpose_a=True, transpose_b=True),
    case("matmul", MATMUL, values(2, 3, 5), values(2, 5, 4), name="matmul-stacks"),
    case("bmm", "bmm", values(2, 3, 5), values(2, 5, 4)),
    case("outer", "outer", values(3), values(4)),
)

test_forward, test_gradient = forward_and_gradient(CASES)
