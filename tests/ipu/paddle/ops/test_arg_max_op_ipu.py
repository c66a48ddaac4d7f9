"""The place of the largest and of the smallest number."""

from __future__ import annotations

from .op_test_ipu import called, case, distinct, forward

CASES = (
    case("argmax", called("argmax", "axis", "keepdims"), distinct(2, 3, 5), axis=1, keepdims=False),
    case("argmax", called("argmax", "axis", "keepdims"), distinct(2, 3, 5), name="argmax-last",
         axis=-1, keepdims=True),
    case("argmin", called("argmin", "axis", "keepdims"), distinct(2, 3, 5), axis=2, keepdims=False),
)  # fmt: skip

test_forward = forward(CASES)
