"""Vectors that are spread over a grid."""

from __future__ import annotations

from typing import Any

from .op_test_ipu import case, forward_and_gradient, values


def _meshgrid(paddle: Any, *vectors: Any, indexing: str) -> Any:
    return paddle.meshgrid(*vectors)


CASES = (
    case("meshgrid", _meshgrid, values(3), values(4), indexing="ij", declared=True),
    case("meshgrid", _meshgrid, values(2), values(3), values(4), name="meshgrid-three", indexing="ij", declared=True),
)

test_forward, test_gradient = forward_and_gradient(CASES)
