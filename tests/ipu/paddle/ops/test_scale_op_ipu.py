"""A factor and a term, before or after it."""

from __future__ import annotations

from .op_test_ipu import case, forward_and_gradient, values

CASES = (
    case("scale", "scale", values(2, 3, 4), scale=1.5, bias=0.25, bias_after_scale=True),
    case("scale", "scale", values(2, 3, 4), name="scale-after", scale=1.5, bias=0.25, bias_after_scale=False),
)

test_forward, test_gradient = forward_and_gradient(CASES)
