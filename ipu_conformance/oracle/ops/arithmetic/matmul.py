"""Matrix products: products of stacks of matrices with broadcasting, and the fully connected layer."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle.op import OPS, Array, Op, multilinear, multilinear_vjp, unbroadcast
from ipu_conformance.oracle.sample import Chooser, Sample


def matmul(a: Array, b: Array, *, transpose_a: bool = False, transpose_b: bool = False) -> Array:
    """The product over the last two axes, the rest broadcast; a vector is a row on the left, a column on the right."""
    return np.matmul(_turned(a, transpose_a), _turned(b, transpose_b))


def matmul_vjp(
    g: Array, a: Array, b: Array, *, transpose_a: bool = False, transpose_b: bool = False
) -> Sequence[Array]:
    """The gradients g b' and a' g, summed over the axes that were broadcast."""
    left, right = _turned(a, transpose_a), _turned(b, transpose_b)
    if right.ndim == 1:
        right, g = right[:, None], g[..., None]
    if left.ndim == 1:
        left, g = left[None, :], g[..., None, :] if b.ndim > 1 else g[None, :]
    da = unbroadcast(g @ np.swapaxes(right, -1, -2), left.shape)
    db = unbroadcast(np.swapaxes(left, -1, -2) @ g, right.shape)
    return (
        da.reshape(a.shape) if a.ndim == 1 else _turned(da, transpose_a),
        db.reshape(b.shape) if b.ndim == 1 else _turned(db, transpose_b),
    )


def _turned(a: Array, transpose: bool) -> Array:
    return np.swapaxes(a, -1, -2) if transpose and a.ndim > 1 else a


def linear(x: Array, weight: Array, bias: Optional[Array] = None) -> Array:
    """x w' + b, with the weight stored as (out, in)."""
    product = np.matmul(x, weight.T)
    return product if bias is None else product + bias


def linear_vjp(g: Array, x: Array, weight: Array, bias: Optional[Array] = None) -> Sequence[Array]:
    """The gradients g w, g' x and the sum of g over all rows."""
    rows = g.reshape(-1, g.shape[-1])
    gradients = [g @ weight, rows.T @ x.reshape(-1, x.shape[-1])]
    return gradients if bias is None else [*gradients, rows.sum(axis=0)]


def addmm(c: Array, a: Array, b: Array, *, alpha: float = 1.0, beta: float = 1.0) -> Array:
    """beta c + alpha a b, with c broadcast to the product."""
    return beta * c + alpha * (a @ b)


def addmm_vjp(g: Array, c: Array, a: Array, b: Array, *, alpha: float = 1.0, beta: float = 1.0) -> Sequence[Array]:
    """The gradients beta g, alpha g b' and alpha a' g."""
    turned_a, turned_b = (np.swapaxes(x, -1, -2) for x in (a, b))
    return beta * unbroadcast(g, c.shape), alpha * (g @ turned_b), alpha * (turned_a @ g)


def outer(a: Array, b: Array) -> Array:
    """Every product of an element of vector a with one of vector b."""
    return np.outer(a, b)


def outer_vjp(g: Array, a: Array, b: Array) -> Sequence[Array]:
    """The gradients g b and g' a."""
    return g @ b, g.T @ a


def _draw_matmul(chooser: Chooser) -> Sample:
    rows, inner, columns, stack = (chooser.integer(1, 6) for _ in range(4))
    lefts = [(rows, inner), (inner,), (stack, rows, inner), (2, 1, rows, inner)]
    rights = [(inner, columns), (inner,), (stack, inner, columns), (stack, inner, columns)]
    left, right = chooser.choice(lefts), chooser.choice(rights)
    flags = {"transpose_a": chooser.boolean(), "transpose_b": chooser.boolean()}
    a, b = chooser.array(left), chooser.array(right)
    return Sample((_turned(a, flags["transpose_a"]), _turned(b, flags["transpose_b"])), flags)


def _draw_bmm(chooser: Chooser) -> Sample:
    batch, rows, inner, columns = (chooser.integer(1, 6) for _ in range(4))
    return Sample((chooser.array((batch, rows, inner)), chooser.array((batch, inner, columns))))


def _draw_linear(chooser: Chooser) -> Sample:
    lead, features, out = chooser.shape(1, 3, 4), chooser.integer(1, 40), chooser.integer(1, 6)
    inputs = (chooser.array((*lead, features)), chooser.array((out, features)))
    return Sample((*inputs, chooser.array((out,))) if chooser.boolean() else inputs)


def _draw_addmm(chooser: Chooser, stack: Tuple[int, ...] = ()) -> Sample:
    rows, inner, columns = (chooser.integer(1, 6) for _ in range(3))
    shape = chooser.choice([(*stack, rows, columns), (1, columns), (columns,)])
    scale = {"alpha": chooser.choice([1.0, 0.5, -2.0]), "beta": chooser.choice([1.0, 0.25])}
    a, b = chooser.array((*stack, rows, inner)), chooser.array((*stack, inner, columns))
    return Sample((chooser.array(shape), a, b), scale)


def _draw_baddbmm(chooser: Chooser) -> Sample:
    return _draw_addmm(chooser, (chooser.integer(1, 4),))


def _draw_outer(chooser: Chooser) -> Sample:
    return Sample((chooser.array((chooser.integer(1, 8),)), chooser.array((chooser.integer(1, 8),))))


def _draw_dot(chooser: Chooser) -> Sample:
    length = chooser.integer(1, 12)
    return Sample((chooser.array((length,)), chooser.array((length,))))


def _scaled(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` with factors of at least one: they bound the magnitude and count every product."""

    def of_magnitudes(*inputs: Array, alpha: float = 1.0, beta: float = 1.0) -> Any:
        return function(*inputs, alpha=max(1.0, abs(alpha)), beta=max(1.0, abs(beta)))

    return of_magnitudes


for _name, _forward, _vjp, _draw in (
    ("matmul", matmul, matmul_vjp, _draw_matmul),
    ("bmm", matmul, matmul_vjp, _draw_bmm),
    ("linear", linear, linear_vjp, _draw_linear),
    ("outer", outer, outer_vjp, _draw_outer),
    ("dot", np.dot, lambda g, a, b: (g * b, g * a), _draw_dot),
):
    OPS.add(Op(_name, "matmul", _forward, multilinear(_forward), _draw, _vjp, multilinear_vjp(_vjp)))
_addmm_errors = multilinear(_scaled(addmm), extra=2), multilinear_vjp(_scaled(addmm_vjp), extra=1)
for _name, _draw in (("addmm", _draw_addmm), ("baddbmm", _draw_baddbmm)):
    OPS.add(Op(_name, "matmul", addmm, _addmm_errors[0], _draw, addmm_vjp, _addmm_errors[1]))
