"""Images between their points, and boxes that a detector predicts; layout is (batch, channel, height, width)."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle.op import Array
from ipu_conformance.oracle.ops.tracked import Tracked, exp, sigmoid, stacked, tracked, tracked_op
from ipu_conformance.oracle.sample import Chooser, Sample

BORDERS = ("zeros", "border")
Corner = Tuple[Array, Array, Tracked, Tracked, Array]
"""Row and column of a pixel, its weights along the width and the height, and whether it is inside."""


def _places(grid: Tracked, sizes: Sequence[int], corners: bool) -> List[Tracked]:
    """Where points lie along width and height, in pixels from the first; the grid is from -1 to 1."""
    places = []
    for place, length in enumerate(sizes):
        moved = grid[..., place] + 1.0
        places.append(moved * ((length - 1) / 2) if corners else moved * (length / 2) - 0.5)
    return places


def _corners(x: Tracked, grid: Tracked, align_corners: bool, border: str) -> List[Corner]:
    height, width = x.shape[2:]
    across, along = _places(grid, (width, height), align_corners)
    if border == "border":
        across, along = _held(across, width), _held(along, height)
    first = np.floor(across.value), np.floor(along.value)
    corners = []
    for down in (0, 1):
        for right in (0, 1):
            column, line = first[0] + right, first[1] + down
            weights = [
                (1.0 - (place - pixel)) if not far else (place - pixel) + 1.0
                for place, pixel, far in ((across, column, right), (along, line, down))
            ]
            inside = (column >= 0) & (column < width) & (line >= 0) & (line < height)
            rows, columns = np.clip(line, 0, height - 1), np.clip(column, 0, width - 1)
            corners.append((rows.astype(int), columns.astype(int), weights[0], weights[1], inside))
    return corners


def _held(place: Tracked, length: int) -> Tracked:
    """A place that is held at the border."""
    return place.where((place.value > 0) & (place.value < length - 1), np.clip(place.value, 0, length - 1))


def _pixels(x: Tracked, corner: Corner) -> Tracked:
    """The pixels (batch, channel, *points) of a corner; outside there are zeros."""
    rows, columns, _, _, inside = corner
    batch = np.arange(x.shape[0])[:, None, None]
    picked = Tracked(
        np.moveaxis(x.value, 1, -1)[batch, rows, columns], np.moveaxis(x.error, 1, -1)[batch, rows, columns]
    )
    moved = Tracked(np.moveaxis(picked.value, -1, 1), np.moveaxis(picked.error, -1, 1))
    return moved.where(inside[:, None])


def _grid_sample(x: Tracked, grid: Tracked, *, align_corners: bool, border: str) -> Sequence[Tracked]:
    parts = []
    for corner in _corners(x, grid, align_corners, border):
        share = corner[2] * corner[3]
        parts.append(_pixels(x, corner) * share[:, None])
    return [parts[0] + parts[1] + parts[2] + parts[3]]


def _grid_sample_pull(
    cotangents: Sequence[Tracked], x: Tracked, grid: Tracked, *, align_corners: bool, border: str
) -> Sequence[Optional[Tracked]]:
    (g,) = cotangents
    height, width = x.shape[2:]
    values, errors, counts = (np.zeros(x.shape) for _ in range(3))
    sizes = np.zeros(x.shape)
    slopes: List[Tracked] = []
    batch = np.arange(x.shape[0])[:, None, None]
    for place, corner in enumerate(_corners(x, grid, align_corners, border)):
        rows, columns, across, along, inside = corner
        part = (g * (across * along)[:, None]).where(inside[:, None])
        for total, added in (
            (values, part.value),
            (errors, part.error),
            (sizes, np.abs(part.value)),
            (counts, np.ones(part.shape) * inside[:, None]),
        ):
            np.add.at(np.moveaxis(total, 1, -1), (batch, rows, columns), np.moveaxis(added, 1, -1))
        product = (g * _pixels(x, corner)).sum(axis=1)
        right, down = place % 2, place // 2
        slopes.append(
            stacked([product * along * (1.0 if right else -1.0), product * across * (1.0 if down else -1.0)], -1)
        )
    moved = slopes[0] + slopes[1] + slopes[2] + slopes[3]
    pixels = np.array([width, height]) - (1.0 if align_corners else 0.0)
    g_grid = moved * (pixels / 2)
    if border == "border":
        across, along = _places(grid, (width, height), align_corners)
        free = [(p.value > 0) & (p.value < n - 1) for p, n in ((across, width), (along, height))]
        g_grid = g_grid.where(np.stack(free, -1))
    return [Tracked(values, errors + np.maximum(counts - 1, 0) * sizes), g_grid]


def between_pixels(chooser: Chooser, shape: Tuple[int, ...], sizes: Sequence[int], corners: bool) -> Array:
    """A grid of points well between pixels, some of them outside the image."""
    axes = []
    for length in sizes:
        whole = chooser.integers(shape, -1, length - 1)
        place = whole + chooser.array(shape, 0.25, 0.75)
        axes.append(place * 2 / (length - 1) - 1 if corners else (place + 0.5) * 2 / length - 1)
    return np.stack(axes, axis=-1)


def _draw_grid_sample(chooser: Chooser) -> Sample:
    batch, channels, height, width = (chooser.integer(low, 4) for low in (1, 1, 2, 2))
    corners = chooser.boolean()
    points = (batch, chooser.integer(1, 3), chooser.integer(1, 3))
    grid = between_pixels(chooser, points, (width, height), corners)
    attributes = {"align_corners": corners, "border": chooser.choice(BORDERS)}
    return Sample((chooser.array((batch, channels, height, width)), grid), attributes)


tracked_op("grid_sample", "interpolation", _grid_sample, _draw_grid_sample, _grid_sample_pull)


# Boxes: of each anchor at each place the left, top, right and bottom edge, and a score for every class. Where the
# confidence is below the threshold both are 0.


def _yolo_box(
    x: Tracked,
    image: Array,
    *,
    anchors: Tuple[int, ...],
    classes: int,
    threshold: float,
    step: int,
    zoom: float,
    clip: bool,
) -> Sequence[Tracked]:
    batch, _, height, width = x.shape
    count = len(anchors) // 2
    parts = x.reshape(batch, count, 5 + classes, height, width)
    sure = sigmoid(parts[:, :, 4])
    kept = sure.value >= threshold
    tall, wide = (tracked(image[:, place].astype(float).reshape(-1, 1, 1, 1)) for place in (0, 1))
    low: List[Tracked] = []
    high: List[Tracked] = []
    for axis, (whole, length) in enumerate(((wide, width), (tall, height))):
        grid = np.arange(length).reshape((1, 1, 1, -1) if axis == 0 else (1, 1, -1, 1)).astype(float)
        centre = (sigmoid(parts[:, :, axis]) * zoom - 0.5 * (zoom - 1) + grid) * whole / float(length)
        anchor = np.array(anchors[axis::2], float).reshape(1, -1, 1, 1)
        half = exp(parts[:, :, 2 + axis]) * anchor * whole / float(step * length) * 0.5
        low.append(centre - half)
        high.append(centre + half)
        if clip:
            low[-1] = low[-1].where(low[-1].value > 0)
            high[-1] = high[-1].where(high[-1].value < whole.value - 1, whole - 1.0)
    boxes = stacked([edge.where(kept) for edge in (*low, *high)], -1)
    scores = stacked([(sure * sigmoid(parts[:, :, 5 + place])).where(kept) for place in range(classes)], -1)
    return [boxes.reshape(batch, -1, 4), scores.reshape(batch, -1, classes)]


def _draw_yolo_box(chooser: Chooser) -> Sample:
    batch, count, classes, height, width = (chooser.integer(1, 3) for _ in range(5))
    step = chooser.choice([8, 16])
    x = chooser.array((batch, count, 5 + classes, height, width))
    # A confidence of exactly one half, which is the threshold, would be decided by rounding.
    x[:, :, 4] = chooser.array((batch, count, height, width), -2.0, 2.0, [0.0])
    image = chooser.integers((batch, 2), 16, 64).astype(np.int32)
    attributes: Any = {
        "anchors": tuple(chooser.integer(4, 32) for _ in range(2 * count)),
        "classes": classes,
        "threshold": 0.5,
        "step": step,
        "zoom": chooser.choice([1.0, 1.5]),
        "clip": chooser.boolean(),
    }
    return Sample((x.reshape(batch, -1, height, width), image), attributes)


tracked_op("yolo_box", "interpolation", _yolo_box, _draw_yolo_box)
