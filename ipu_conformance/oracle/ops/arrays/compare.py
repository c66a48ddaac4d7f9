"""Comparison and logic: exact, boolean and without gradient; ``where`` passes its gradient to the side it takes."""

from __future__ import annotations

from typing import Callable, Sequence

import numpy as np

from ipu_conformance.oracle.op import Array
from ipu_conformance.oracle.ops.arithmetic.pointwise import Draw, broadcastable, pointwise
from ipu_conformance.oracle.ops.arrays.movement import movement
from ipu_conformance.oracle.sample import Chooser, Sample

SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan])
"""Few values, so that operands are often equal; the infinities, both zeros and NaN are among them."""


def _special(chooser: Chooser, shape: Sequence[int]) -> Array:
    return SPECIAL[chooser.integers(shape, 0, len(SPECIAL) - 1)]


def _booleans(chooser: Chooser, shape: Sequence[int]) -> Array:
    return chooser.integers(shape, 0, 1).astype(bool)


def _draw(operands: int, values: Callable[[Chooser, Sequence[int]], Array]) -> Draw:
    return lambda chooser: Sample(tuple(values(chooser, shape) for shape in broadcastable(chooser, operands)))


def _draw_where(chooser: Chooser) -> Sample:
    shapes = broadcastable(chooser, 3)
    return Sample((_booleans(chooser, shapes[0]), chooser.array(shapes[1]), chooser.array(shapes[2])))


def _rows(names: str, draw: Draw) -> None:
    for name in names.split():
        pointwise(name, getattr(np, name), draw=draw, ulps=0, family="compare")


# A comparison with NaN is false, except not_equal; the two zeros are equal.
_rows("equal not_equal less less_equal greater greater_equal", _draw(2, _special))
_rows("isnan isinf isfinite", _draw(1, _special))
_rows("logical_and logical_or logical_xor", _draw(2, _booleans))
_rows("logical_not", _draw(1, _booleans))
movement("where", "compare", np.where, _draw_where)
