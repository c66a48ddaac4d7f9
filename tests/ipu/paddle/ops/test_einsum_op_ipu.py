"""Contractions by names of dimensions, products by blocks, and sums of diagonals."""

from __future__ import annotations

from typing import Any

from .op_test_ipu import case, forward_and_gradient, values


def _einsum(paddle: Any, *operands: Any, equation: str) -> Any:
    return paddle.einsum(equation, *operands)


CASES = (
    case("einsum", _einsum, values(2, 3, 4), values(2, 4, 5), name="einsum-stacks", equation="bij,bjk->bik"),
    case("einsum", _einsum, values(2, 3, 4), values(2, 4, 5), name="einsum-turned", equation="bij,bjk->kbi"),
    case("einsum", _einsum, values(3), values(4), name="einsum-outer", equation="i,j->ij"),
    case("einsum", _einsum, values(2, 3, 4), name="einsum-sum", equation="ijk->ki"),
    case("kron", "kron", values(2, 3), values(3, 2), declared=True),
    case("trace", "trace", values(3, 4), offset=1, axis1=0, axis2=1, declared=True),
    case("trace", "trace", values(2, 3, 4), name="trace-outer", offset=-1, axis1=0, axis2=2, declared=True),
)

test_forward, test_gradient = forward_and_gradient(CASES)
