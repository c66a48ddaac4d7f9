"""Vectors that are spread over a grid."""

from __future__ import annotations

from .op_test_ipu import called, case, forward_and_gradient, values

VECTORS = {"meshgrid": (values(3), values(4)), "meshgrid-three": (values(2), values(3), values(4))}
CASES = tuple(
    case("meshgrid", called("meshgrid"), *vectors, name=name, indexing="ij", declared=True)
    for name, vectors in VECTORS.items()
)

test_forward, test_gradient = forward_and_gradient(CASES)
