"""Rows of a table by their numbers."""

from __future__ import annotations

from typing import Any, Optional

from .op_test_ipu import case, forward_and_gradient, integers, values


def _embedding(paddle: Any, ids: Any, weight: Any, padding_idx: Optional[int] = None) -> Any:
    return paddle.nn.functional.embedding(ids, weight, padding_idx)


CASES = (
    case("embedding", _embedding, integers(2, 5, high=3), values(4, 3), declared=True),
    case(
        "embedding",
        _embedding,
        integers(2, 5, high=3),
        values(4, 3),
        name="embedding-padding",
        declared=True,
        padding_idx=2,
    ),
)

test_forward, test_gradient = forward_and_gradient(CASES)
