"""``synthetic-digits``: handwriting-like digits drawn from strokes with affine and elastic jitter, and noise.

Lengths are whole numbers of 1/256 pixel while the strokes are bent, and of 1/16 pixel when they are inked: with
integers alone the bytes do not depend on a maths library, a compiler or a processor.
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt
from typing import Tuple

import numpy as np

from ipu_conformance.data.synthetic.glyphs import BASIS_BITS, NODES, POINTS, basis_table, node_table
from ipu_conformance.data.synthetic.words import between, bytes_of, draw_labelled, sample_chunks

SIDE = 28
CHUNK = 256
"""Samples drawn at a time: their pixels stay in a processor's second-level cache."""

_GRID = 4
_PARAMETERS = 16 + 2 * NODES + 2 * _GRID * _GRID
_NOISE = SIDE * SIDE // 8
_WORDS = -(-(_PARAMETERS + _NOISE) // 4) * 4

_FAR = 127
"""The farthest that ink reaches, in 1/16 pixel; the squares of two such distances fit in an int16 together."""


def digits(seed: int, stream: int, first: int, count: int) -> Tuple[np.ndarray, np.ndarray]:
    """Images ``uint8 [count, 28, 28, 1]`` and labels ``uint8 [count]`` of the samples from ``first`` on."""
    chunks = sample_chunks(seed, stream, first, count, words=_WORDS, size=CHUNK)
    return draw_labelled(chunks, lambda words, labels: _draw(words, labels)[..., None], (count, SIDE, SIDE, 1))


def _draw(words: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """``uint8 [n, 28, 28]``: ink on paper with the noise on top."""
    ink = _ink(_strokes(words, labels), between(words[:, 7], 14, 26))
    strength = between(words[:, 8], 130, 255)[:, None, None]
    paper = between(words[:, 9], 0, 40)[:, None, None]
    noise = bytes_of(words[:, _PARAMETERS : _PARAMETERS + _NOISE]).reshape(-1, SIDE, SIDE).astype(np.int32)
    loudness = between(words[:, 10], 10, 90)[:, None, None].astype(np.int32)
    grey = paper + ((ink * (strength - paper)) >> 8) + (((noise - 128) * loudness) >> 8)
    return np.clip(grey, 0, 255).astype(np.uint8)


def _strokes(words: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """``int64 [n, POINTS, 2]``: the points (x, y) along every sample's strokes, in 1/256 pixel."""
    jitter = between(words[:, 16 : 16 + 2 * NODES], -7, 7).reshape(-1, NODES, 2)
    nodes = node_table()[labels] + jitter
    points = (basis_table()[labels] @ nodes) >> (BASIS_BITS - 4)  # box units, four fraction bits

    wide, high = between(words[:, 1], 21, 40), between(words[:, 2], 26, 40)
    turn, slant = between(words[:, 3], -11, 11), between(words[:, 4], -9, 9)
    x, y = points[:, :, 0], points[:, :, 1]
    across = (wide[:, None] * x + (slant - turn)[:, None] * y) >> 4
    down = (high[:, None] * y + turn[:, None] * x) >> 4
    middle = SIDE * 128
    placed = np.stack(
        (across + middle + between(words[:, 5], -900, 900)[:, None],
         down + middle + between(words[:, 6], -700, 700)[:, None]),
        axis=2,
    )  # fmt: skip
    return placed + _elastic(words[:, 16 + 2 * NODES : _PARAMETERS], placed)


def _elastic(words: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The displacement at each point, interpolated linearly between the random displacements of a coarse grid."""
    count = len(words)
    grid = between(words, -380, 380).reshape(count, _GRID, _GRID, 2)
    cell = SIDE * 256 // (_GRID - 1) + 1
    inside = np.clip(points, 0, SIDE * 256 - 1)
    index, fraction = inside // cell, inside % cell
    i, j = index[:, :, 0], index[:, :, 1]
    u, v = fraction[:, :, :1], fraction[:, :, 1:]
    sample = np.arange(count)[:, None]
    left = grid[sample, i, j] * (cell - v) + grid[sample, i, j + 1] * v
    right = grid[sample, i + 1, j] * (cell - v) + grid[sample, i + 1, j + 1] * v
    return (left * (cell - u) + right * u) // (cell * cell)


def _ink(points: np.ndarray, width: np.ndarray) -> np.ndarray:
    """``int32 [n, 28, 28]`` from 0 to 256: full within ``width`` (1/16 pixel) of a stroke, then fading."""
    # Samples run along the last axis, so that the two inner operations work on long contiguous rows.
    centres = np.arange(SIDE)[:, None] * 16 + 8
    position = np.ascontiguousarray((points >> 4).transpose(1, 2, 0))[:, :, None, :]
    offset = np.clip(position - centres, -_FAR, _FAR).astype(np.int16)
    square = offset * offset
    nearest = np.full((SIDE, SIDE, len(points)), np.iinfo(np.int16).max, np.int16)
    candidate = np.empty_like(nearest)
    for point in range(POINTS):
        np.add(square[point, 1, :, None], square[point, 0, None, :], out=candidate)
        np.minimum(nearest, candidate, out=nearest)
    distance = _roots()[nearest.transpose(2, 0, 1)]
    return np.clip((width[:, None, None].astype(np.int32) + 8 - distance) << 4, 0, 256)


@lru_cache(maxsize=None)
def _roots() -> np.ndarray:
    """The integer square root of every squared distance that can occur."""
    return np.array([isqrt(square) for square in range(2 * _FAR * _FAR + 1)], np.int32)
