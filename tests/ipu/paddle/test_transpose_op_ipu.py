"""Dimensions and values in another order."""

from __future__ import annotations

from typing import Any

from .op_test_ipu import case, forward_and_gradient, values


def _shuffled(paddle: Any, x: Any, block: int, order: str) -> Any:
    return paddle.nn.functional.pixel_shuffle(x, block)


CASES = (
    case("transpose", lambda p, x, axes: p.transpose(x, axes), values(2, 3, 4), axes=(2, 0, 1)),
    case("flip", lambda p, x, axis: p.flip(x, list(axis)), values(2, 3, 4), axis=(0, 2)),
    case("roll", lambda p, x, shift, axis: p.roll(x, shift, axis), values(2, 3, 5), shift=(2,), axis=(2,)),
    case("pixel_shuffle", _shuffled, values(2, 8, 3, 4), block=2, order="CRD"),
)

test_forward, test_gradient = forward_and_gradient(CASES)
