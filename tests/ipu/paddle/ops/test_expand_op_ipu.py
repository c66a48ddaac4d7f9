"""Tensors that are repeated along dimensions of length 1, and as a whole."""

from __future__ import annotations

from typing import Any, Sequence

from .op_test_ipu import called, case, forward_and_gradient, values


def _as_another(paddle: Any, x: Any, shape: Sequence[int]) -> Any:
    return paddle.expand_as(x, paddle.zeros(list(shape), x.dtype))


CASES = (
    case("expand", "expand", values(3, 1), shape=(2, 3, 4)),
    case("expand", _as_another, values(3, 1), name="expand_as", shape=(2, 3, 4)),
    case("tile", called("tile", "repeats"), values(2, 3), repeats=(3, 2)),
    case("tile", called("tile", "repeats"), values(2, 3), name="tile-wider", repeats=(4, 1, 2)),
)

test_forward, test_gradient = forward_and_gradient(CASES)
