"""Rows for the ops of Paddle's that take images apart, look into them between their points, and decode boxes."""

from __future__ import annotations

import itertools
import math
from typing import List, Sequence, Tuple

from ipu_conformance.ir.readers.op_writer import LONGEST_LIST, length_of
from ipu_conformance.ir.readers.paddle.elementwise import clipped
from ipu_conformance.ir.readers.paddle.ops import Call, Writer, row
from ipu_conformance.ir.tensor import IRError


@row("unfold")
def _unfold(call: Call, to: Writer) -> None:
    """For every place of the window the pixels that it meets, one beside the other."""
    source, output = call.read("X"), call.output("Y")
    batch, channels, *space = (length_of(length, source) for length in to.shape(source))
    kernel, strides, dilations = (call.ints(name) for name in ("kernel_sizes", "strides", "dilations"))
    pads = call.ints("paddings")
    low, high = (pads, pads) if len(pads) == 2 else (pads[:2], pads[2:])
    if math.prod(kernel) > LONGEST_LIST:
        raise IRError(f"unfold has windows of {math.prod(kernel)} pixels; at most {LONGEST_LIST} are written")
    if any(pads):
        shape = (batch, channels, *(n + a + b for n, a, b in zip(space, low, high)))
        ends = to.constant([0, 0, *low, 0, 0, *high], "INT64")
        source = to.add("Pad", (source, ends, to.number(0, source)), None, {"mode": "constant"}, shape=shape)
    space = [length_of(length, source) for length in to.shape(source)[2:]]
    counts = [(n - (k - 1) * d - 1) // s + 1 for n, k, s, d in zip(space, kernel, strides, dilations)]
    taps = []
    for offsets in itertools.product(*(range(size) for size in kernel)):
        starts = [offset * dilation for offset, dilation in zip(offsets, dilations)]
        stops = [start + (count - 1) * step + 1 for start, count, step in zip(starts, counts, strides)]
        bounds = [to.constant(list(values), "INT64") for values in (starts, stops, (2, 3), strides)]
        tap = to.add("Slice", (source, *bounds), None, None, shape=(batch, channels, *counts))
        taps.append(to.reshape(tap, (batch, channels, 1, math.prod(counts))))
    shape = (batch, channels, len(taps), math.prod(counts))
    beside = to.add("Concat", taps, None, {"axis": 2}, shape=shape) if len(taps) > 1 else taps[0]
    to.reshape(beside, to.sizes(output), output)


@row("grid_sampler")
def _grid_sampler(call: Call, to: Writer) -> None:
    """Every point of the grid gets the pixels around it, weighted by how near they are."""
    source, grid, output = call.read("X"), call.read("Grid"), call.output("Output")
    mode, border = str(call.get("mode", "bilinear")), str(call.get("padding_mode", "zeros"))
    if len(to.shape(source)) != 4 or mode not in ("bilinear", "nearest") or border not in ("zeros", "border"):
        raise IRError(
            f"grid_sampler of {source!r} has the mode {mode!r} with {border!r} around it; images are sampled by "
            "'bilinear' or 'nearest' with 'zeros' or 'border'"
        )
    batch, channels, height, width = (length_of(length, source) for length in to.shape(source))
    points = math.prod(length_of(length, grid) for length in to.shape(grid)[1:3])
    flat = to.reshape(source, (batch, channels, height * width))
    across, along = _points(call, to, grid, (batch, points), (width, height))
    if mode == "nearest":
        corners = [tuple(to.add("Round", (place,)) for place in (across, along))]
    else:
        first = [to.add("Floor", (place,)) for place in (across, along)]
        second = [to.add("Add", (place, to.number(1, source))) for place in first]
        corners = [(x, y) for y in (first[1], second[1]) for x in (first[0], second[0])]
    total = ""
    for x, y in corners:
        value = _pixel(to, flat, (x, y), (width, height))
        share = _share(to, ((across, x), (along, y)), (width, height), mode == "bilinear")
        part = to.add("Mul", (value, to.reshape(share, (batch, 1, points))))
        total = to.add("Add", (total, part)) if total else part
    to.reshape(total, to.sizes(output), output)


def _points(call: Call, to: Writer, grid: str, shape: Tuple[int, int], lengths: Sequence[int]) -> Tuple[str, str]:
    """Where the points lie, in pixels from the first one, along the width and along the height."""
    batch, points = shape
    halves = [to.fresh("Split", to.dtype(grid), (batch, points, 1)) for _ in lengths]
    to.add("Split", (to.reshape(grid, (batch, points, 2)),), halves, {"axis": 2, "split": (1, 1)})
    corners: List[str] = []
    for half, length in zip(halves, lengths):
        moved = to.add("Add", (to.reshape(half, shape), to.number(1, grid)))
        if call.get("align_corners", True):
            place = to.add("Mul", (moved, to.number((length - 1) / 2, grid)))
        else:
            place = to.add("Sub", (to.add("Mul", (moved, to.number(length / 2, grid))), to.number(0.5, grid)))
        if call.get("padding_mode", "zeros") == "border":
            place = clipped(to, place, 0.0, float(length - 1))
        corners.append(place)
    return corners[0], corners[1]


def _pixel(to: Writer, flat: str, corner: Tuple[str, str], lengths: Sequence[int]) -> str:
    """The pixels at whole places; a place outside is held at the border."""
    batch, channels, _ = to.shape(flat)
    x, y = (to.cast(clipped(to, place, 0.0, length - 1.0), "INT32") for place, length in zip(corner, lengths))
    index = to.add("Add", (to.add("Mul", (y, to.constant(lengths[0], "INT32"))), x))
    points = length_of(to.shape(index)[1], index)
    sizes = [length_of(batch, flat), length_of(channels, flat), points]
    line = to.reshape(index, (sizes[0], 1, points))
    spread = to.add("Expand", (line, to.constant(sizes, "INT64")), None, None, shape=sizes)
    return to.add("GatherElements", (flat, spread), None, {"axis": 2}, shape=sizes)


def _share(to: Writer, places: Sequence[Tuple[str, str]], lengths: Sequence[int], weighted: bool) -> str:
    """How much of a pixel a point gets: less with its distance, and nothing of what is outside."""
    product = ""
    for (point, pixel), length in zip(places, lengths):
        held = clipped(to, pixel, 0.0, length - 1.0)
        parts = [to.cast(to.add("Equal", (held, pixel), dtype="BOOL"), to.dtype(point))]
        if weighted:
            distance = to.add("Abs", (to.add("Sub", (point, pixel)),))
            parts.append(to.add("Sub", (to.number(1, point), distance), None, None, shape=to.shape(point)))
        for part in parts:
            product = to.add("Mul", (product, part)) if product else part
    return product


@row("yolo_box")
def _yolo_box(call: Call, to: Writer) -> None:
    """Boxes and scores of every anchor at every place; what is below the threshold is zero."""
    source = call.read("X")
    if call.get("iou_aware", False):
        raise IRError("yolo_box weighs its confidence by an overlap that is predicted; leave iou_aware off")
    anchors, classes = call.ints("anchors"), int(call.get("class_num", 1))
    batch, _, height, width = (length_of(length, source) for length in to.shape(source))
    count = len(anchors) // 2
    shape = (batch, count, 5 + classes, height, width)
    sizes = (1, 1, 1, 1, 1, classes)
    parts = [to.fresh("Split", to.dtype(source), (batch, count, size, height, width)) for size in sizes]
    to.add("Split", (to.reshape(source, shape),), parts, {"axis": 2, "split": sizes})
    sure = to.add("Sigmoid", (parts[4],))
    below = to.add("Less", (sure, to.number(float(call.get("conf_thresh", 0.01)), source)), dtype="BOOL")
    kept = to.cast(to.add("Not", (below,)), to.dtype(source))
    edges = _edges(call, to, parts, (batch, count, height, width))
    boxes = to.add("Concat", edges, None, {"axis": 2}, shape=(batch, count, 4, height, width))
    scores = to.add("Mul", (to.add("Sigmoid", (parts[5],)), sure))
    for values, slot in ((boxes, "Boxes"), (scores, "Scores")):
        chosen = to.add("Mul", (values, kept))
        to.reshape(to.transpose(chosen, (0, 1, 3, 4, 2)), to.sizes(call.output(slot)), call.output(slot))


def _edges(call: Call, to: Writer, parts: Sequence[str], shape: Tuple[int, int, int, int]) -> List[str]:
    """Left, top, right and bottom of every box, in pixels of the image."""
    batch, count, height, width = shape
    dtype = to.dtype(parts[0])
    image = to.cast(call.read("ImgSize"), dtype)
    sides = [to.fresh("Split", dtype, (batch, 1)) for _ in range(2)]
    to.add("Split", (image,), sides, {"axis": 1, "split": (1, 1)})
    tall, wide = (to.reshape(side, (batch, 1, 1, 1, 1)) for side in sides)
    zoom, step = float(call.get("scale_x_y", 1.0)), int(call.get("downsample_ratio", 32))
    anchors = call.ints("anchors")
    low: List[str] = []
    high: List[str] = []
    for axis, (whole, length) in enumerate(((wide, width), (tall, height))):
        grid = to.constant(list(range(length)), dtype, (1, 1, 1, 1, length) if axis == 0 else (1, 1, 1, length, 1))
        inside = to.add("Mul", (to.add("Sigmoid", (parts[axis],)), to.number(zoom, parts[0])))
        moved = to.add("Sub", (inside, to.number(0.5 * (zoom - 1), parts[0])))
        pixel = to.add("Mul", (whole, to.number(1 / length, parts[0])))
        centre = to.add("Mul", (to.add("Add", (moved, grid)), pixel))
        sizes = [anchors[2 * place + axis] / (step * length * 2) for place in range(count)]
        anchor_sizes = to.constant(sizes, dtype, (1, count, 1, 1, 1))
        half = to.add("Mul", (to.add("Mul", (to.add("Exp", (parts[2 + axis],)), anchor_sizes)), whole))
        low.append(to.add("Sub", (centre, half)))
        high.append(to.add("Add", (centre, half)))
        if call.get("clip_bbox", True):
            low[-1] = to.add("Relu", (low[-1],))
            last = to.add("Sub", (whole, to.number(1, parts[0])))
            high[-1] = to.add("Min", (high[-1], last))
    return [*low, *high]
