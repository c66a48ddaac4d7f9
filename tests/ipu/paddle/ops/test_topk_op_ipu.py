"""The largest and the smallest numbers, and where they are."""

from __future__ import annotations

from .op_test_ipu import called, case, distinct, forward_and_gradient

CASES = (
    case("topk", "topk", distinct(3, 5), k=2, axis=1, largest=True),
    case("topk", "topk", distinct(4, 3), name="topk-smallest", k=3, axis=0, largest=False),
    case("argsort", called("argsort", "axis", "descending"), distinct(3, 5), axis=1, descending=True),
)  # fmt: skip

test_forward, test_gradient = forward_and_gradient(CASES)
