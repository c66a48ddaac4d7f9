"""Products that are named dimension by dimension, products by blocks, and sums of diagonals."""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle.op import OPS, Array, Op, Term, exact, multilinear, multilinear_vjp
from ipu_conformance.oracle.sample import Chooser, Sample

EQUATIONS = ("ij,jk->ik", "bij,bjk->kbi", "bi,bi->b", "i,j->ij", "ijk->ki", "ij,jk,kl->li", "ij,j->", "bij,kj->bk")


def einsum(*operands: Array, equation: str) -> Array:
    """The sum over every name that the result does not have, of the products of the operands."""
    return np.asarray(np.einsum(equation, *operands))


def einsum_vjp(g: Array, *operands: Array, equation: str) -> Sequence[Array]:
    """For each operand the contraction of the cotangent with all others, spread over what only that operand names."""
    left, right = equation.split("->")
    parts = left.split(",")
    gradients: List[Array] = []
    for place, (names, operand) in enumerate(zip(parts, operands)):
        others = [(part, value) for other, (part, value) in enumerate(zip(parts, operands)) if other != place]
        known = set(right).union(*(part for part, _ in others))
        kept = "".join(name for name in names if name in known)
        summed = np.einsum(",".join([right, *(part for part, _ in others)]) + "->" + kept, g, *(v for _, v in others))
        shape = [size if name in known else 1 for name, size in zip(names, operand.shape)]
        gradients.append(np.broadcast_to(np.reshape(summed, shape), operand.shape).copy())
    return gradients


def _further_products(operands: Sequence[Array]) -> int:
    """The roundings of a product of several factors beyond the first: each further factor adds one."""
    return max(0, len(operands) - 2)


def einsum_error(outputs: Array, *operands: Array, equation: str) -> Sequence[Sequence[Term]]:
    """The error of a sum of products, each of as many factors as there are operands."""
    return multilinear(einsum, _further_products(operands))(outputs, *operands, equation=equation)


def einsum_vjp_error(gradients: Any, g: Array, *operands: Array, equation: str) -> Sequence[Sequence[Term]]:
    """The same for the gradients, in whose products the cotangent takes the place of an operand."""
    return multilinear_vjp(einsum_vjp, _further_products(operands))(gradients, g, *operands, equation=equation)


def _draw_einsum(chooser: Chooser) -> Sample:
    equation = chooser.choice(EQUATIONS)
    lengths = {name: chooser.integer(1, 4) for name in "bijkl"}
    shapes = [tuple(lengths[name] for name in part) for part in equation.split("->")[0].split(",")]
    return Sample(tuple(chooser.array(shape) for shape in shapes), {"equation": equation})


def _interleaved(a: Array, b: Array) -> Tuple[Array, Array]:
    """Both operands with a dimension of length 1 for each of the other's, in turn."""
    rank = max(a.ndim, b.ndim)
    one, other = ((1,) * (rank - x.ndim) + x.shape for x in (a, b))
    return (
        a.reshape([size for length in one for size in (length, 1)]),
        b.reshape([size for length in other for size in (1, length)]),
    )


def kron(a: Array, b: Array) -> Array:
    """A block for each element of a: the whole of b times that element."""
    return np.asarray(np.kron(a, b))


def kron_vjp(g: Array, a: Array, b: Array) -> Sequence[Array]:
    """For each element the sum over its block, and over its copies in all blocks."""
    one, other = _interleaved(a, b)
    apart = g.reshape([max(sizes) for sizes in zip(one.shape, other.shape)])
    inner, outer = tuple(range(1, apart.ndim, 2)), tuple(range(0, apart.ndim, 2))
    return (apart * other).sum(axis=inner).reshape(a.shape), (apart * one).sum(axis=outer).reshape(b.shape)


def _draw_kron(chooser: Chooser) -> Sample:
    return Sample((chooser.array(chooser.shape(1, 2, 3)), chooser.array(chooser.shape(1, 2, 3))))


def trace(x: Array, *, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The sum along a diagonal of two axes; ``offset`` counts diagonals above the main one."""
    return np.asarray(np.trace(x, offset, axis1, axis2))


def trace_vjp(g: Array, x: Array, *, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Sequence[Array]:
    """The cotangent on the diagonal, and zeros elsewhere."""
    mask = np.eye(x.shape[axis1], x.shape[axis2], offset)
    return [np.moveaxis(g[..., None, None] * mask, (-2, -1), (axis1, axis2))]


def _draw_trace(chooser: Chooser) -> Sample:
    shape = tuple(max(size, 2) for size in chooser.shape(2, 3, 4))
    axes = chooser.choice([(0, 1), (1, 0), (0, len(shape) - 1)])
    attributes = {"offset": chooser.integer(-1, 1), "axis1": axes[0], "axis2": axes[1]}
    return Sample((chooser.array(shape),), attributes)


OPS.add(Op("einsum", "matmul", einsum, einsum_error, _draw_einsum, einsum_vjp, einsum_vjp_error))
OPS.add(Op("kron", "matmul", kron, multilinear(kron), _draw_kron, kron_vjp, multilinear_vjp(kron_vjp)))
OPS.add(Op("trace", "matmul", trace, multilinear(trace), _draw_trace, trace_vjp, exact))
