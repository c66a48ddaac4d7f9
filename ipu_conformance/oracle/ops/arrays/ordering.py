"""Sorting, the largest elements and running sums.

Of equal elements the one with the lower index comes first, in rising and in falling order. Frameworks promise that
only where they call a sort stable; samples have no equal elements.
"""

from __future__ import annotations

from typing import Any, Callable, List, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle.op import OPS, Array, Op, Outputs, Term, exact
from ipu_conformance.oracle.ops.arithmetic.pointwise import Draw, summed
from ipu_conformance.oracle.sample import Chooser, Sample


def _order(x: Array, axis: int, descending: bool) -> Array:
    if not descending:
        return np.argsort(x, axis, kind="stable")
    backwards = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - backwards, axis)


def _sort(x: Array, *, axis: int, descending: bool) -> Tuple[Array, Array]:
    order = _order(x, axis, descending)
    return np.take_along_axis(x, order, axis), order


def _topk(x: Array, *, k: int, axis: int, largest: bool = True) -> Tuple[Array, Array]:
    order = np.take(_order(x, axis, largest), np.arange(k), axis)
    return np.take_along_axis(x, order, axis), order


def _values_vjp(forward: Callable[..., Tuple[Array, Array]]) -> Callable[..., List[Array]]:
    """The gradient of an op that gives values and the indices it took them from."""

    def vjp(cotangents: Outputs, x: Array, **attributes: Any) -> List[Array]:
        gradient = np.zeros_like(x)
        np.put_along_axis(gradient, forward(x, **attributes)[1], cotangents[0], attributes["axis"])
        return [gradient]

    return vjp


def _drawn(**choices: Sequence[Any]) -> Draw:
    def draw(chooser: Chooser) -> Sample:
        shape = chooser.shape(1, 3, 5)
        attributes = {name: chooser.choice(options) for name, options in choices.items()}
        return Sample((chooser.distinct(shape),), {"axis": chooser.integer(-1, len(shape) - 1), **attributes})

    return draw


def _draw_topk(chooser: Chooser) -> Sample:
    shape = chooser.shape(1, 3, 9)
    axis = chooser.integer(0, len(shape) - 1)
    attributes = {"k": chooser.integer(1, shape[axis]), "axis": axis, "largest": chooser.boolean()}
    return Sample((chooser.distinct(shape),), attributes)


OPS.add(Op("sort", "indexing", _sort, exact, _drawn(descending=[False, True]), _values_vjp(_sort), exact))
OPS.add(Op("topk", "indexing", _topk, exact, _draw_topk, _values_vjp(_topk), exact))
OPS.add(
    Op(
        "argsort",
        "indexing",
        lambda x, *, axis, descending: _order(x, axis, descending),
        exact,
        _drawn(descending=[False, True]),
    )
)


def _argmax(x: Array, *, axis: int, keepdims: bool = False) -> Array:
    return np.asarray(np.argmax(x, axis, keepdims=keepdims))


def _argmin(x: Array, *, axis: int, keepdims: bool = False) -> Array:
    return np.asarray(np.argmin(x, axis, keepdims=keepdims))


OPS.add(Op("argmax", "indexing", _argmax, exact, _drawn(keepdims=[False, True])))
OPS.add(Op("argmin", "indexing", _argmin, exact, _drawn(keepdims=[False, True])))


# Running sums: ``exclusive`` leaves out the element itself, ``reverse`` sums from the end.


def _cumsum(x: Array, *, axis: int, exclusive: bool = False, reverse: bool = False) -> Array:
    if reverse:
        return np.flip(_cumsum(np.flip(x, axis), axis=axis, exclusive=exclusive), axis)
    total = np.cumsum(x, axis)
    if not exclusive:
        return total
    first = np.zeros_like(np.take(total, [0], axis))
    return np.concatenate([first, np.take(total, np.arange(x.shape[axis] - 1), axis)], axis)


def _cumsum_error(y: Array, x: Array, *, axis: int, **rest: Any) -> List[List[Term]]:
    return [summed(_cumsum(np.abs(x), axis=axis, **rest), x.shape[axis])]


def _cumsum_vjp(g: Array, x: Array, *, axis: int, exclusive: bool = False, reverse: bool = False) -> List[Array]:
    return [_cumsum(g, axis=axis, exclusive=exclusive, reverse=not reverse)]


def _cumsum_vjp_error(
    gradients: Any, g: Array, x: Array, *, axis: int, exclusive: bool = False, reverse: bool = False
) -> List[List[Term]]:
    return _cumsum_error(x, g, axis=axis, exclusive=exclusive, reverse=not reverse)


OPS.add(
    Op(
        "cumsum",
        "indexing",
        _cumsum,
        _cumsum_error,
        _drawn(exclusive=[False, True], reverse=[False, True]),
        _cumsum_vjp,
        _cumsum_vjp_error,
    )
)
