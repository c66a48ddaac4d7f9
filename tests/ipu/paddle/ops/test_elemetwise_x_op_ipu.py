"""Arithmetic of two tensors, of which one is broadcast."""

from __future__ import annotations

from .op_test_ipu import called, case, distinct, forward_and_gradient, values

CASES = (
    case("add", "add", values(2, 3, 4), values(3, 1)),
    case("sub", "subtract", values(2, 3, 4), values(4)),
    case("mul", "multiply", values(2, 3, 4), values(2, 1, 4)),
    case("div", "divide", values(2, 3, 4), values(3, 4, low=0.5)),
    case("pow", "pow", values(2, 3, low=0.25), values(3), name="elementwise_pow"),
    case("floor_mod", "remainder", values(2, 3, low=2.0, high=5.0), values(3, low=0.5, high=1.5), differentiable=False),
    *(case(op, called(op), distinct(2, 3), values(2, 3, low=-0.015625, high=0.015625), ties="second")
      for op in ("maximum", "minimum")),
)  # fmt: skip

test_forward, test_gradient = forward_and_gradient(CASES)
