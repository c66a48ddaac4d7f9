"""Functions of one number."""

from __future__ import annotations

from .op_test_ipu import case, forward_and_gradient, values

SHAPE = (2, 3, 4)
POSITIVE = values(*SHAPE, low=0.25)
SMALL = values(*SHAPE, low=-0.875, high=0.875)

CASES = (
    *(case(op, op, values(*SHAPE)) for op in ("exp", "sin", "cos", "sinh", "cosh", "atan", "erf", "square")),
    *(case(op, op, POSITIVE) for op in ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal")),
    *(case(op, op, SMALL) for op in ("asin", "acos", "tan")),
    *(case(op, op, values(*SHAPE, avoid=[-1.5, -0.5, 0.5, 1.5, -1.0, 0.0, 1.0])) for op in ("abs", "sign")),
    *(case(op, op, values(*SHAPE, avoid=[-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5]), differentiable=False)
      for op in ("floor", "ceil", "round")),
    case("expm1", "expm1", values(*SHAPE)),
)  # fmt: skip

test_forward, test_gradient = forward_and_gradient(CASES)
