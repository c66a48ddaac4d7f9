"""Cutting arrays apart, joining them, padding them and taking triangles and diagonals."""

from __future__ import annotations

from typing import Callable, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle.op import Array
from ipu_conformance.oracle.ops.arithmetic.pointwise import Draw
from ipu_conformance.oracle.ops.arrays.movement import movement
from ipu_conformance.oracle.sample import Chooser, Sample

PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


# Slices. Starts and stops are given for every axis and may be negative, as in Python.


def _strided_slice(x: Array, *, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]) -> Array:
    return x[tuple(slice(*bounds) for bounds in zip(starts, stops, steps))]


def _slice(x: Array, *, starts: Sequence[int], stops: Sequence[int]) -> Array:
    return x[tuple(slice(*bounds) for bounds in zip(starts, stops))]


def _draw_slice(strided: bool) -> Draw:
    def draw(chooser: Chooser) -> Sample:
        shape = chooser.shape(1, 3, 6)
        starts = [chooser.integer(0, size - 1) for size in shape]
        stops = [chooser.integer(start + 1, size) for start, size in zip(starts, shape)]
        negative = chooser.boolean()
        attributes = {
            "starts": tuple(start - size if negative else start for start, size in zip(starts, shape)),
            "stops": tuple(stops),
        }
        if strided:
            attributes["steps"] = tuple(chooser.integer(1, 3) for _ in shape)
        return Sample((chooser.array(shape),), attributes)

    return draw


def _slice_update(
    x: Array, value: Array, *, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]
) -> Array:
    """``x`` with ``value``, which broadcasts, in place of a slice."""
    y = x.copy()
    y[tuple(slice(*bounds) for bounds in zip(starts, stops, steps))] = value
    return y


def _draw_slice_update(chooser: Chooser) -> Sample:
    drawn = _draw_slice(strided=True)(chooser)
    shape = _strided_slice(drawn.inputs[0], **drawn.attributes).shape
    own = tuple(1 if chooser.integer(0, 3) == 3 else size for size in shape[chooser.integer(0, len(shape) - 1) :])
    return Sample((*drawn.inputs, chooser.array(own)), drawn.attributes)


movement("slice", "indexing", _slice, _draw_slice(strided=False))
movement("strided_slice", "indexing", _strided_slice, _draw_slice(strided=True))
movement("slice_update", "indexing", _slice_update, _draw_slice_update)


# Cutting and joining.


def _split(x: Array, *, sizes: Sequence[int], axis: int) -> Tuple[Array, ...]:
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis))


def _draw_split(chooser: Chooser) -> Sample:
    sizes = tuple(chooser.integer(1, 3) for _ in range(chooser.integer(1, 3)))
    shape = list(chooser.shape(0, 2, 4))
    axis = chooser.integer(0, len(shape))
    shape.insert(axis, sum(sizes))
    return Sample((chooser.array(shape),), {"sizes": sizes, "axis": axis})


def _draw_concat(chooser: Chooser) -> Sample:
    shape = chooser.shape(1, 3, 4)
    axis = chooser.integer(0, len(shape) - 1)
    pieces = [(*shape[:axis], chooser.integer(1, 4), *shape[axis + 1 :]) for _ in range(chooser.integer(1, 6))]
    return Sample(tuple(chooser.array(piece) for piece in pieces), {"axis": axis})


def _draw_stack(chooser: Chooser) -> Sample:
    shape = chooser.shape(1, 3, 4)
    pieces = tuple(chooser.array(shape) for _ in range(chooser.integer(1, 6)))
    return Sample(pieces, {"axis": chooser.integer(0, len(shape))})


def _unstack(x: Array, *, axis: int) -> Tuple[Array, ...]:
    return tuple(np.moveaxis(x, axis, 0))


def _draw_unstack(chooser: Chooser) -> Sample:
    shape = chooser.shape(2, 3, 4)
    return Sample((chooser.array(shape),), {"axis": chooser.integer(0, len(shape) - 1)})


def _meshgrid(*xs: Array, indexing: str = "ij") -> Tuple[Array, ...]:
    grids = np.meshgrid(*xs, indexing="ij")
    return tuple(np.swapaxes(grid, 0, 1) if indexing == "xy" else grid for grid in grids)


def _draw_meshgrid(chooser: Chooser) -> Sample:
    lengths = [chooser.integer(1, 4) for _ in range(chooser.integer(2, 3))]
    return Sample(tuple(chooser.array((n,)) for n in lengths), {"indexing": chooser.choice(["ij", "xy"])})


movement("split", "indexing", _split, _draw_split)
movement("concat", "indexing", lambda *xs, axis: np.concatenate(xs, axis), _draw_concat)
movement("stack", "indexing", lambda *xs, axis: np.stack(xs, axis), _draw_stack)
movement("unstack", "indexing", _unstack, _draw_unstack)
movement("meshgrid", "indexing", _meshgrid, _draw_meshgrid)


# Padding of the space axes of (batch, channel, *space). Reflect leaves out the border element itself.


def _pad(x: Array, *, pads: Sequence[Tuple[int, int]], mode: str = "constant", value: float = 0.0) -> Array:
    widths = [(0, 0)] * (x.ndim - len(pads)) + [tuple(pair) for pair in pads]
    filled = {"constant_values": value} if mode == "constant" else {}
    return np.pad(x, widths, mode=PAD_MODES[mode], **filled)  # type: ignore[call-overload]


def _draw_pad(chooser: Chooser) -> Sample:
    shape = (chooser.integer(1, 2), chooser.integer(1, 2), chooser.integer(3, 5), chooser.integer(3, 5))
    pads = tuple((chooser.integer(0, 2), chooser.integer(0, 2)) for _ in range(2))
    value = chooser.choice([0.0, -1.5])
    return Sample((chooser.array(shape),), {"pads": pads, "mode": chooser.choice(list(PAD_MODES)), "value": value})


movement("pad", "indexing", _pad, _draw_pad)


# Triangles and diagonals; ``offset`` counts diagonals above the main one.


def _matrix(triangle: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, *, offset=0: triangle(x, offset)


def _draw_triangle(chooser: Chooser) -> Sample:
    return Sample((chooser.array(chooser.shape(2, 3, 5)),), {"offset": chooser.integer(-2, 2)})


def _draw_diagonal(chooser: Chooser) -> Sample:
    side = chooser.integer(3, 5)
    shape = chooser.choice([(side,), (side, chooser.integer(3, 5))])
    return Sample((chooser.array(shape),), {"offset": chooser.integer(-2, 2)})


movement("triu", "indexing", _matrix(np.triu), _draw_triangle)
movement("tril", "indexing", _matrix(np.tril), _draw_triangle)
# The diagonal of a matrix, or the matrix that has a vector as its diagonal.
movement("diag", "indexing", _matrix(np.diag), _draw_diagonal)
