"""Resizing of the space axes of (batch, channel, *space) images, nearest neighbour and (bi)linear.

``coordinates`` says where output element i lies in an input of n elements, resized to m:
"half_pixel" at (i + 0.5) n/m - 0.5, "align_corners" at i (n - 1)/(m - 1), "asymmetric" at i n/m.
Nearest takes the element that this point is in: floor((i + 0.5) n/m) for half_pixel (torch's nearest-exact,
TensorFlow), floor(i n/m) for asymmetric (torch's and Paddle's nearest), and the rounded point for align_corners.
Linear resizing is one matrix per axis, so its gradient is that of a matrix product.
"""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle.op import OPS, Array, Op, OracleError, Term
from ipu_conformance.oracle.ops.arrays.movement import movement
from ipu_conformance.oracle.sample import Chooser, Sample

COORDINATES = ("half_pixel", "align_corners", "asymmetric")


def points(inputs: int, outputs: int, coordinates: str) -> Array:
    """Where each of ``outputs`` elements lies among ``inputs``, before it is held inside."""
    i = np.arange(outputs)
    if coordinates == "half_pixel":
        return (2 * i + 1) * inputs / (2 * outputs) - 0.5
    if coordinates == "align_corners":
        return i * (inputs - 1) / max(outputs - 1, 1)
    if coordinates == "asymmetric":
        return i * inputs / outputs
    raise OracleError(f"coordinates {coordinates!r} are unknown; use one of {', '.join(COORDINATES)}")


def nearest_indices(inputs: int, outputs: int, coordinates: str) -> Array:
    """The input element that each output element copies."""
    exact_points = points(inputs, outputs, coordinates)
    whole = np.floor(exact_points) if coordinates == "asymmetric" else np.floor(exact_points + 0.5)
    return np.clip(whole, 0, inputs - 1).astype(np.int64)


def linear_matrix(inputs: int, outputs: int, coordinates: str) -> Array:
    """The weights (output, input) of linear interpolation; outside the first and last element is the border."""
    at = np.clip(points(inputs, outputs, coordinates), 0, inputs - 1)
    return np.maximum(0.0, 1.0 - np.abs(at[:, None] - np.arange(inputs)))


def _slopes(inputs: int, outputs: int, coordinates: str) -> Array:
    """How much a rounding of each point can change its weights: its size, at both neighbours."""
    at = np.abs(points(inputs, outputs, coordinates)) + 0.5
    near = linear_matrix(inputs, outputs, coordinates) > 0
    beside = near | np.roll(near, 1, axis=1) | np.roll(near, -1, axis=1)
    return at[:, None] * beside


def _nearest(x: Array, *, size: Tuple[int, ...], coordinates: str) -> Array:
    for axis, outputs in enumerate(size, start=2):
        x = np.take(x, nearest_indices(x.shape[axis], outputs, coordinates), axis=axis)
    return x


def _along(matrices: Sequence[Array], x: Array) -> Array:
    for axis, matrix in enumerate(matrices, start=2):
        x = np.moveaxis(np.tensordot(matrix, x, axes=(1, axis)), 0, axis)
    return x


def _matrices(x: Array, size: Tuple[int, ...], coordinates: str) -> List[Array]:
    return [linear_matrix(n, m, coordinates) for n, m in zip(x.shape[2:], size)]


def _linear(x: Array, *, size: Tuple[int, ...], coordinates: str) -> Array:
    return _along(_matrices(x, size, coordinates), x)


def _linear_vjp(cotangent: Array, x: Array, *, size: Tuple[int, ...], coordinates: str) -> List[Array]:
    return [_along([matrix.T for matrix in _matrices(x, size, coordinates)], cotangent)]


def _terms(x: Array, values: Array, size: Tuple[int, ...], coordinates: str, transposed: bool) -> List[Term]:
    """What the products along each axis lose, and what the rounding of the points themselves costs."""
    matrices = _matrices(x, size, coordinates)
    slopes = [_slopes(n, m, coordinates) for n, m in zip(x.shape[2:], size)]
    turn = (lambda matrix: matrix.T) if transposed else (lambda matrix: matrix)
    size_of = _along([turn(matrix) for matrix in matrices], np.abs(values))
    longest = max(int((turn(matrix) > 0).sum(axis=1).max()) for matrix in matrices) ** len(matrices)
    terms = [Term(size_of, max(longest, 2), where="accumulate"), Term(size_of, ulps=len(matrices) * 1.0)]
    for axis, slope in enumerate(slopes):
        mixed = [turn(slope if other == axis else matrix) for other, matrix in enumerate(matrices)]
        # Scale, product and offset of a point are rounded; the weight is a difference of that point.
        terms.append(Term(_along(mixed, np.abs(values)), ulps=1.5))
    return terms


def _linear_error(y: Array, x: Array, *, size: Tuple[int, ...], coordinates: str) -> List[List[Term]]:
    return [_terms(x, x, size, coordinates, transposed=False)]


def _linear_vjp_error(
    gradients: Any, cotangent: Array, x: Array, *, size: Tuple[int, ...], coordinates: str
) -> List[List[Term]]:
    return [_terms(x, cotangent, size, coordinates, transposed=True)]


def _draw(chooser: Chooser) -> Sample:
    x = chooser.array((chooser.integer(1, 2), chooser.integer(1, 2), chooser.integer(1, 5), chooser.integer(1, 5)))
    size = (chooser.integer(1, 9), chooser.integer(1, 9))
    return Sample((x,), {"size": size, "coordinates": chooser.choice(COORDINATES)})


def _draw_nearest(chooser: Chooser) -> Sample:
    """Sizes whose ratio is a power of two, so that no point is rounded across a border between elements."""
    scale, (height, width) = chooser.choice([1, 2, 4]), (chooser.integer(1, 4), chooser.integer(1, 4))
    space, size = (height, width), (height * scale, width * scale)
    if chooser.boolean():
        space, size = size, space
    x = chooser.array((chooser.integer(1, 2), chooser.integer(1, 2), *space))
    return Sample((x,), {"size": size, "coordinates": chooser.choice(["half_pixel", "asymmetric"])})


movement("interpolate_nearest", "interpolation", _nearest, _draw_nearest)
OPS.add(Op("interpolate_linear", "interpolation", _linear, _linear_error, _draw, _linear_vjp, _linear_vjp_error))
