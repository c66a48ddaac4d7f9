"""One number in place of values."""

from __future__ import annotations

from .op_test_ipu import case, forward_and_gradient, truths, values

CASES = (
    case("masked_fill", lambda p, x, mask, value: p.where(mask, p.full_like(x, value), x), values(2, 3), truths(2, 3),
         value=0.75),
)  # fmt: skip

test_forward, test_gradient = forward_and_gradient(CASES)
