"""Gather, scatter and masks; a gradient adds up where an index repeats.

A scatter that overwrites has no specified order: with a repeated index any of the updates may win, and samples have
none. Indices are not negative.
"""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle.op import OPS, Array, Op, Term, exact
from ipu_conformance.oracle.ops.arithmetic.pointwise import summed
from ipu_conformance.oracle.ops.arrays.movement import movement
from ipu_conformance.oracle.sample import Chooser, Sample


def _with_axis(chooser: Chooser, rank_high: int = 3) -> Tuple[Tuple[int, ...], int]:
    shape = chooser.shape(1, rank_high, 5)
    return shape, chooser.integer(0, len(shape) - 1)


# Gather: whole slices along an axis (ONNX Gather), single elements (ONNX GatherElements, torch.gather), or the
# elements or slices that the index vectors in the last axis of ``index`` point to.


def _gather(x: Array, index: Array, *, axis: int) -> Array:
    return np.take(x, index, axis)


def _draw_gather(chooser: Chooser) -> Sample:
    shape, axis = _with_axis(chooser)
    index = chooser.integers(chooser.shape(1, 2, 4), 0, shape[axis] - 1)
    return Sample((chooser.array(shape), index), {"axis": axis})


def _draw_index_select(chooser: Chooser) -> Sample:
    shape, axis = _with_axis(chooser)
    index = chooser.integers((chooser.integer(1, 6),), 0, shape[axis] - 1)
    return Sample((chooser.array(shape), index), {"axis": axis})


def _draw_take_along(chooser: Chooser) -> Sample:
    shape, axis = _with_axis(chooser)
    taken = (*shape[:axis], chooser.integer(1, 6), *shape[axis + 1 :])
    return Sample((chooser.array(shape), chooser.integers(taken, 0, shape[axis] - 1)), {"axis": axis})


def _gather_nd(x: Array, index: Array) -> Array:
    return x[tuple(np.moveaxis(index, -1, 0))]


def _vectors(chooser: Chooser, shape: Sequence[int]) -> Array:
    """Index vectors into the first axes of ``shape``."""
    depth = chooser.integer(1, len(shape))
    lead = chooser.shape(1, 2, 4)
    return np.stack([chooser.integers(lead, 0, size - 1) for size in shape[:depth]], axis=-1)


def _draw_gather_nd(chooser: Chooser) -> Sample:
    shape = chooser.shape(1, 3, 4)
    return Sample((chooser.array(shape), _vectors(chooser, shape)))


movement("gather", "indexing", _gather, _draw_gather)
movement("index_select", "indexing", _gather, _draw_index_select)
movement(
    "take_along_axis",
    "indexing",
    lambda x, index, *, axis: np.take_along_axis(x, index, axis),
    _draw_take_along,
)
movement("gather_nd", "indexing", _gather_nd, _draw_gather_nd)


# Scatter: whole slices along the first axis replaced by updates, or added to.


def _scatter(x: Array, index: Array, updates: Array) -> Array:
    y = x.copy()
    y[index] = updates
    return y


def _draw_scatter(chooser: Chooser) -> Sample:
    shape = chooser.shape(1, 3, 5)
    index = chooser.generator().permutation(shape[0])[: chooser.integer(1, shape[0])]
    return Sample((chooser.array(shape), index, chooser.array((len(index), *shape[1:]))))


movement("scatter", "indexing", _scatter, _draw_scatter)


def _scatter_add(x: Array, index: Array, updates: Array) -> Array:
    return _scatter_nd_add(x, index[:, None], updates)


def _scatter_nd_add(x: Array, index: Array, updates: Array) -> Array:
    y = x.copy()
    np.add.at(y, tuple(np.moveaxis(index, -1, 0)), updates)
    return y


def _scatter_add_error(y: Array, x: Array, index: Array, updates: Array) -> List[List[Term]]:
    return _scatter_nd_add_error(y, x, index[:, None], updates)


def _scatter_nd_add_error(y: Array, x: Array, index: Array, updates: Array) -> List[List[Term]]:
    met = _scatter_nd_add(np.ones_like(x), index, np.ones_like(updates))
    return [summed(_scatter_nd_add(np.abs(x), index, np.abs(updates)), int(met.max()))]


def _scatter_add_vjp(g: Array, x: Array, index: Array, updates: Array) -> List[Any]:
    return [g, None, g[index]]


def _scatter_nd_add_vjp(g: Array, x: Array, index: Array, updates: Array) -> List[Any]:
    return [g, None, _gather_nd(g, index)]


def _draw_scatter_add(chooser: Chooser) -> Sample:
    shape = chooser.shape(1, 3, 4)
    index = chooser.integers((chooser.integer(1, 6),), 0, shape[0] - 1)
    return Sample((chooser.array(shape), index, chooser.array((len(index), *shape[1:]))))


def _draw_scatter_nd_add(chooser: Chooser) -> Sample:
    shape = chooser.shape(1, 3, 3)
    index = _vectors(chooser, shape)
    return Sample((chooser.array(shape), index, chooser.array((*index.shape[:-1], *shape[index.shape[-1] :]))))


OPS.add(Op("scatter_add", "indexing", _scatter_add, _scatter_add_error, _draw_scatter_add, _scatter_add_vjp, exact))
OPS.add(
    Op(
        "scatter_nd_add",
        "indexing",
        _scatter_nd_add,
        _scatter_nd_add_error,
        _draw_scatter_nd_add,
        _scatter_nd_add_vjp,
        exact,
    )
)


# Masks.


def _draw_masked(chooser: Chooser, **attributes: Any) -> Sample:
    shape = chooser.shape(1, 3, 4)
    return Sample((chooser.array(shape), chooser.integers(shape, 0, 1).astype(bool)), attributes)


movement("masked_select", "indexing", lambda x, mask: x[mask], _draw_masked)
movement(
    "masked_fill",
    "indexing",
    lambda x, mask, *, value: np.where(mask, value, x),
    lambda chooser: _draw_masked(chooser, value=chooser.choice([0.0, -1.5])),
)


# One-hot. An id outside 0 … depth - 1 gives a row of ``off`` in TensorFlow and is refused elsewhere; samples have none.


def _one_hot(ids: Array, *, depth: int, on: float = 1.0, off: float = 0.0) -> Array:
    return np.where(ids[..., None] == np.arange(depth), on, off)


def _draw_one_hot(chooser: Chooser) -> Sample:
    depth = chooser.integer(1, 5)
    on, off = chooser.choice([(1.0, 0.0), (0.75, -0.25)])
    return Sample((chooser.integers(chooser.shape(1, 2, 5), 0, depth - 1),), {"depth": depth, "on": on, "off": off})


OPS.add(Op("one_hot", "indexing", _one_hot, exact, _draw_one_hot))
