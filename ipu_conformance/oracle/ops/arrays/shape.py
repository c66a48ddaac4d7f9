"""Shape ops and whole-array rearrangements."""

from __future__ import annotations

from itertools import product
from typing import Any, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle.op import OPS, Array, Op, exact
from ipu_conformance.oracle.ops.arrays.movement import movement
from ipu_conformance.oracle.sample import Chooser, Sample


def _sample(chooser: Chooser, shape: Sequence[int], /, **attributes: Any) -> Sample:
    return Sample((chooser.array(shape),), attributes)


def _permutation(chooser: Chooser, length: int) -> Tuple[int, ...]:
    return tuple(int(i) for i in chooser.generator().permutation(length))


# Views.


def _draw_reshape(chooser: Chooser) -> Sample:
    shape = chooser.shape(1, 4, 4)
    first = chooser.choice(shape)
    return _sample(chooser, shape, shape=chooser.choice([(-1,), (first, -1), (-1, first), (1, *reversed(shape))]))


def _draw_transpose(chooser: Chooser) -> Sample:
    shape = chooser.shape(1, 6, 4)
    return _sample(chooser, shape, axes=_permutation(chooser, len(shape)))


def _draw_squeeze(chooser: Chooser) -> Sample:
    shape = list(chooser.shape(1, 2, 4))
    axes = sorted({chooser.integer(0, 1), chooser.integer(0, 2)})
    for axis in axes:
        shape.insert(axis, 1)
    return _sample(chooser, shape, axis=tuple(axis for axis in axes if shape[axis] == 1))


def _draw_unsqueeze(chooser: Chooser) -> Sample:
    axes = {chooser.integer(0, 1), chooser.integer(0, 2)}
    return _sample(chooser, chooser.shape(1, 3, 4), axis=tuple(sorted(axes)))


def _flatten(x: Array, *, start: int, stop: int) -> Array:
    """The array with the axes from ``start`` to ``stop``, both included, merged into one."""
    start, stop = start % x.ndim, stop % x.ndim
    return x.reshape((*x.shape[:start], -1, *x.shape[stop + 1 :]))


def _draw_flatten(chooser: Chooser) -> Sample:
    shape = chooser.shape(2, 4, 4)
    start = chooser.integer(0, len(shape) - 1)
    return _sample(chooser, shape, start=start, stop=chooser.choice([-1, chooser.integer(start, len(shape) - 1)]))


movement("reshape", "shape", lambda x, *, shape: x.reshape(shape), _draw_reshape)
movement("transpose", "shape", lambda x, *, axes: np.transpose(x, axes), _draw_transpose)
movement("squeeze", "shape", lambda x, *, axis: np.squeeze(x, axis), _draw_squeeze)
movement("unsqueeze", "shape", lambda x, *, axis: np.expand_dims(x, axis), _draw_unsqueeze)
movement("flatten", "shape", _flatten, _draw_flatten)
OPS.add(
    Op(
        "shape",
        "shape",
        lambda x: np.array(x.shape, dtype=np.int64),
        exact,
        lambda chooser: _sample(chooser, chooser.shape(1, 4, 4)),
    )
)


# Copies.


def _draw_tile(chooser: Chooser) -> Sample:
    shape = chooser.shape(1, 3, 3)
    return _sample(chooser, shape, repeats=tuple(chooser.integer(1, 3) for _ in shape))


def _draw_expand(chooser: Chooser) -> Sample:
    full = chooser.shape(1, 3, 4)
    return _sample(chooser, [1 if chooser.boolean() else n for n in full], shape=(*chooser.shape(0, 1, 3), *full))


def _axes(chooser: Chooser, length: int) -> Tuple[int, ...]:
    return _permutation(chooser, length)[: chooser.integer(1, length)]


def _draw_flip(chooser: Chooser) -> Sample:
    shape = chooser.shape(1, 3, 4)
    return _sample(chooser, shape, axis=_axes(chooser, len(shape)))


def _draw_roll(chooser: Chooser) -> Sample:
    shape = chooser.shape(1, 3, 4)
    axes = _axes(chooser, len(shape))
    return _sample(chooser, shape, shift=tuple(chooser.integer(-5, 5) for _ in axes), axis=axes)


movement("tile", "shape", lambda x, *, repeats: np.tile(x, repeats), _draw_tile)
movement("expand", "shape", lambda x, *, shape: np.broadcast_to(x, shape), _draw_expand)
movement("flip", "shape", lambda x, *, axis: np.flip(x, axis), _draw_flip)
movement("roll", "shape", lambda x, *, shift, axis: np.roll(x, shift, axis), _draw_roll)


# Between space and channels, on (batch, channel, height, width) images. The channel of depth-to-space counts the
# block first ("DCR": TensorFlow, ONNX's default) or last ("CRD": pixel_shuffle of torch and Paddle).


def _depth_to_space(x: Array, *, block: int, order: str = "DCR") -> Array:
    n, c, h, w = x.shape
    depth = c // block**2
    if order == "DCR":
        parts = x.reshape(n, block, block, depth, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, depth, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, depth, h * block, w * block)


def _space_to_depth(x: Array, *, block: int, order: str = "DCR") -> Array:
    n, c, h, w = x.shape
    parts = x.reshape(n, c, h // block, block, w // block, block)
    parts = parts.transpose(0, 3, 5, 1, 2, 4) if order == "DCR" else parts.transpose(0, 1, 3, 5, 2, 4)
    return parts.reshape(n, c * block**2, h // block, w // block)


def _draw_blocks(to_space: bool, order: str) -> Any:
    def draw(chooser: Chooser) -> Sample:
        n, c, h, w = (chooser.integer(1, 3) for _ in range(4))
        block = chooser.integer(2, 3)
        shape = (n, c * block**2, h, w) if to_space else (n, c, h * block, w * block)
        return _sample(chooser, shape, block=block, order=order)

    return draw


movement("depth_to_space", "shape", _depth_to_space, _draw_blocks(True, "DCR"))
movement("space_to_depth", "shape", _space_to_depth, _draw_blocks(False, "DCR"))
movement("pixel_shuffle", "shape", _depth_to_space, _draw_blocks(True, "CRD"))
movement("pixel_unshuffle", "shape", _space_to_depth, _draw_blocks(False, "CRD"))


def _unfold(
    x: Array, *, kernel: Tuple[int, int], stride: Tuple[int, int], padding: Tuple[int, int], dilation: Tuple[int, int]
) -> Array:
    """The windows of an image as columns (batch, channel * kernel, window), zeros around the image."""
    n, c = x.shape[:2]
    padded = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    counts = [(size - (k - 1) * d - 1) // s + 1 for size, k, s, d in zip(padded.shape[2:], kernel, stride, dilation)]
    taps = []
    for offsets in product(*(range(k) for k in kernel)):
        starts = [offset * d for offset, d in zip(offsets, dilation)]
        spans = [slice(a, a + (m - 1) * s + 1, s) for a, m, s in zip(starts, counts, stride)]
        taps.append(padded[:, :, spans[0], spans[1]].reshape(n, c, -1))
    return np.stack(taps, axis=2).reshape(n, c * len(taps), -1)


def _draw_unfold(chooser: Chooser) -> Sample:
    def pair(low: int, high: int) -> Tuple[int, int]:
        return chooser.integer(low, high), chooser.integer(low, high)

    shape = (chooser.integer(1, 2), chooser.integer(1, 3), *pair(5, 7))
    return _sample(chooser, shape, kernel=pair(1, 3), stride=pair(1, 3), padding=pair(0, 2), dilation=pair(1, 2))


movement("unfold", "shape", _unfold, _draw_unfold)
