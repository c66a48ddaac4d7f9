"""The ten digits as strokes: nodes in a box 100 wide and 140 high, and Bezier curves through them.

A curve is a tuple of node numbers: two for a line, three for a quadratic, four for a cubic. Curves that share a node
stay joined when the nodes are jittered.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, Tuple

import numpy as np

POINTS = 60
"""Points along each digit, divided evenly among its curves; divisible by every number of curves below."""

BASIS_BITS = 12


class Glyph(NamedTuple):
    """A digit's nodes and the curves drawn through them."""

    nodes: Tuple[Tuple[int, int], ...]
    curves: Tuple[Tuple[int, ...], ...]


GLYPHS: Tuple[Glyph, ...] = (
    Glyph(
        ((50, 0), (78, 0), (100, 31), (100, 70), (100, 109), (78, 140),
         (50, 140), (22, 140), (0, 109), (0, 70), (0, 31), (22, 0)),
        ((0, 1, 2, 3), (3, 4, 5, 6), (6, 7, 8, 9), (9, 10, 11, 0)),
    ),
    Glyph(((30, 32), (56, 0), (56, 140)), ((0, 1), (1, 2), (1, 2))),
    Glyph(
        ((4, 36), (8, -12), (98, -18), (94, 42), (90, 76), (30, 106), (2, 138), (100, 138)),
        ((0, 1, 2, 3), (3, 4, 5, 6), (6, 7)),
    ),
    Glyph(
        ((6, 12), (44, -18), (112, 8), (86, 48), (74, 66), (36, 66),
         (110, 62), (124, 152), (42, 141), (20, 138), (4, 122)),
        ((0, 1, 2, 3), (3, 4, 5), (5, 6, 7, 8), (8, 9, 10)),
    ),
    Glyph(((64, 0), (2, 94), (100, 94), (74, 52), (74, 140)), ((0, 1), (1, 2), (3, 4))),
    Glyph(
        ((92, 2), (22, 2), (14, 62), (48, 44), (118, 58), (96, 108), (80, 150), (26, 148), (2, 122)),
        ((0, 1), (1, 2), (2, 3, 4, 5), (5, 6, 7, 8)),
    ),
    Glyph(
        ((80, 0), (32, 16), (2, 58), (3, 100), (6, 152), (100, 156), (97, 100), (94, 50), (16, 54)),
        ((0, 1, 2, 3), (3, 4, 5, 6), (6, 7, 8, 3)),
    ),
    Glyph(((2, 2), (98, 2), (72, 44), (46, 86), (40, 140)), ((0, 1), (1, 2, 3, 4))),
    Glyph(
        ((50, 66), (0, 60), (6, 0), (50, 0), (94, 0), (100, 60),
         (-16, 74), (-6, 140), (50, 140), (106, 140), (116, 74)),
        ((0, 1, 2, 3), (3, 4, 5, 0), (0, 6, 7, 8), (8, 9, 10, 0)),
    ),
    Glyph(
        ((95, 42), (95, -14), (3, -16), (3, 44), (6, 88), (86, 88), (98, 82), (92, 122), (70, 140)),
        ((0, 1, 2, 3), (3, 4, 5, 0), (0, 6, 7, 8)),
    ),
)  # fmt: skip

NODES = max(len(glyph.nodes) for glyph in GLYPHS)


@lru_cache(maxsize=None)
def node_table() -> np.ndarray:
    """``int64 [10, NODES, 2]``: the nodes about the middle of the box, padded with zeros."""
    table = np.zeros((len(GLYPHS), NODES, 2), np.int64)
    for digit, glyph in enumerate(GLYPHS):
        table[digit, : len(glyph.nodes)] = np.array(glyph.nodes) - (50, 70)
    return table


@lru_cache(maxsize=None)
def basis_table() -> np.ndarray:
    """``int64 [10, POINTS, NODES]``: what each node contributes to each point, in units of ``2**-BASIS_BITS``."""
    table = np.zeros((len(GLYPHS), POINTS, NODES), np.int64)
    for digit, glyph in enumerate(GLYPHS):
        per_curve = POINTS // len(glyph.curves)
        for curve_number, curve in enumerate(glyph.curves):
            for step in range(per_curve):
                point = curve_number * per_curve + step
                for node, weight in zip(curve, _bernstein(len(curve) - 1, step, per_curve - 1)):
                    table[digit, point, node] += weight
    return table


def _bernstein(degree: int, step: int, steps: int) -> Tuple[int, ...]:
    """The Bernstein weights of a curve of ``degree`` at ``step / steps``, rounded down to ``2**-BASIS_BITS``."""
    binomial = {1: (1, 1), 2: (1, 2, 1), 3: (1, 3, 3, 1)}[degree]
    whole = steps**degree
    return tuple(
        (factor * step**k * (steps - step) ** (degree - k) << BASIS_BITS) // whole for k, factor in enumerate(binomial)
    )
