"""Vectors that are spread over a grid."""

from __future__ import annotations

from .op_test_ipu import called, case, forward_and_gradient, values

MESHGRID = called("meshgrid")

CASES = (
    case("meshgrid", MESHGRID, values(3), values(4), indexing="ij", declared=True),
    case(
        "meshgrid",
        MESHGRID,
        values(2),
        values(3),
        values(4),
        name="meshgrid-three",
        indexing="ij",
        declared=True,
    ),
)

test_forward, test_gradient = forward_and_gradient(CASES)
