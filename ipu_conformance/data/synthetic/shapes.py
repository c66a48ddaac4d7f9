"""``synthetic-cifar``: ten shapes, each with a striped or chequered texture of its own, on a textured background.

Colours, textures, sizes, places and small turns are random, so that only the outline tells the class. All arithmetic
is on integers, as in ``digits``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Tuple

import numpy as np

from ipu_conformance.data.synthetic.words import between, bytes_of, draw_labelled, sample_chunks

SIDE = 32
CHUNK = 64
_PARAMETERS = 28
_NOISE = SIDE * SIDE * 3 // 8
_WORDS = _PARAMETERS + _NOISE

_TEMPLATE = 256
_BLUR = 12
"""Template pixels over which an outline fades: about one pixel of the image."""

_POLYGONS = {
    2: ((0, -100), (95, 75), (-95, 75)),
    5: ((0, -110), (26, -36), (105, -34), (42, 14), (65, 89), (0, 44), (-65, 89), (-42, 14), (-105, -34), (-26, -36)),
    7: ((-100, -70), (-50, -70), (0, 20), (50, -70), (100, -70), (25, 85), (-25, 85)),
}


def shapes(seed: int, stream: int, first: int, count: int) -> Tuple[np.ndarray, np.ndarray]:
    """Images ``uint8 [count, 32, 32, 3]`` and labels ``uint8 [count]`` of the samples from ``first`` on."""
    chunks = sample_chunks(seed, stream, first, count, words=_WORDS, size=CHUNK)
    return draw_labelled(
        chunks, lambda words, labels: _paint(words, labels).transpose(0, 2, 3, 1), (count, SIDE, SIDE, 3)
    )


def _paint(words: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """``uint8 [n, 3, 32, 32]``: the shape's texture over the background's, with the noise on top."""
    inside = _outline(words, labels)[:, None]
    ground_colour = between(words[:, 5:8], 0, 255)
    # Half a turn of the colour circle per channel, give or take a quarter: never the background's own colour.
    shape_colour = (ground_colour + between(words[:, 8:11], 64, 192)) & 255
    ground = _texture(words[:, 11:17], ground_colour)
    shape = _texture(words[:, 17:23], shape_colour)
    noise = bytes_of(words[:, _PARAMETERS:]).reshape(-1, 3, SIDE, SIDE).astype(np.int32)
    loudness = _plane(between(words[:, 23], 10, 60))[:, None]
    colour = ground + (((shape - ground) * inside) >> 8) + (((noise - 128) * loudness) >> 8)
    return np.clip(colour, 0, 255).astype(np.uint8)


def _outline(words: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """``int32 [n, 32, 32]`` from 0 to 256: how far each pixel lies inside the shape."""
    scale, turn = _plane(between(words[:, 1], 125, 215)), _plane(between(words[:, 2], -60, 60))
    half_pixels = np.arange(SIDE, dtype=np.int32) * 2 - SIDE + 1
    x = half_pixels[None, None, :] - _plane(between(words[:, 3], -10, 10))
    y = half_pixels[None, :, None] - _plane(between(words[:, 4], -10, 10))
    across = ((scale * x + turn * y) >> 5) + _TEMPLATE // 2
    down = ((scale * y - turn * x) >> 5) + _TEMPLATE // 2
    # The templates are empty at their border, so a clipped coordinate is outside the shape.
    across, down = np.clip(across, 0, _TEMPLATE - 1), np.clip(down, 0, _TEMPLATE - 1)
    return _templates()[labels[:, None, None], down, across]


def _texture(words: np.ndarray, colour: np.ndarray) -> np.ndarray:
    """``int32 [n, 3, 32, 32]``: ``colour`` lightened and darkened by the product of two triangular waves."""
    pixels = np.arange(SIDE, dtype=np.int32)
    phase, depth = _plane(between(words[:, 4], 0, 511)), _plane(between(words[:, 5], 20, 90))
    waves = []
    for k in (0, 2):
        across, down = _plane(between(words[:, k], -120, 120)), _plane(between(words[:, k + 1], -120, 120))
        run = (across * pixels[None, None, :] + phase) + down * pixels[None, :, None]
        waves.append(np.abs((run & 511) - 256) - 128)
    relief = (waves[0] * waves[1] * depth) >> 14
    return colour.astype(np.int32)[:, :, None, None] + relief[:, None]


def _plane(values: np.ndarray) -> np.ndarray:
    """One value per sample, to be spread over its pixels; 32 bits hold every product of this module."""
    return values.astype(np.int32)[:, None, None]


@lru_cache(maxsize=None)
def _templates() -> np.ndarray:
    """``int32 [10, 256, 256]`` from 0 to 256: each shape with soft outlines, down and across about the middle."""
    v, u = np.mgrid[:_TEMPLATE, :_TEMPLATE] - _TEMPLATE // 2
    square = u * u + v * v
    masks = {
        0: square < 95**2,
        1: (abs(u) < 82) & (abs(v) < 82),
        3: (square < 100**2) & (square > 55**2),
        4: ((abs(u) < 32) & (abs(v) < 100)) | ((abs(v) < 32) & (abs(u) < 100)),
        6: (square < 100**2) & ((u - 55) ** 2 + v * v > 80**2),
        8: (abs(u) < 95) & (abs(v) > 28) & (abs(v) < 85),
        9: (abs(u) < 90) & (abs(v) < 90) & ((u < -35) | (v > 35)),
    }
    masks.update({label: _polygon(corners, u, v) for label, corners in _POLYGONS.items()})
    return np.stack([_soften(masks[label]) for label in range(10)])


def _polygon(corners: Tuple[Tuple[int, int], ...], u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Whether each point lies inside the polygon, by the even-odd rule."""
    inside = np.zeros(u.shape, bool)
    for (u0, v0), (u1, v1) in zip(corners, corners[1:] + corners[:1]):
        if v0 != v1:
            crosses = (v0 > v) != (v1 > v)
            inside ^= crosses & (((u - u0) * (v1 - v0) < (v - v0) * (u1 - u0)) == (v1 > v0))
    return inside


def _soften(mask: np.ndarray) -> np.ndarray:
    """The share of 256 of the mask in a square window about each point."""
    total = mask.astype(np.int32)
    for axis in (0, 1):
        summed = np.cumsum(total, axis=axis)
        total = summed - np.roll(summed, _BLUR, axis=axis)
        # The window of the first points reaches past the border, where the mask is empty.
        head = [slice(None), slice(None)]
        head[axis] = slice(0, _BLUR)
        total[tuple(head)] = 0
    return (np.roll(total, (-_BLUR // 2, -_BLUR // 2), (0, 1)) * 256 // (_BLUR * _BLUR)).astype(np.int32)
