"""Rows for the ops of Paddle's that move, cut, join and look up values, and for constants."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import List, Optional, Sequence, Tuple

from ipu_conformance.ir.readers.op_writer import FLOATS, length_of
from ipu_conformance.ir.readers.paddle.ops import Call, Writer, dtype_of, row
from ipu_conformance.ir.shapes import MismatchError, broadcast
from ipu_conformance.ir.tensor import IRError, Shape

_FAR = 2**31 - 1
"""What stands for "to the end" in a slice."""


@row("reshape", "reshape2")
def _reshape(call: Call, to: Writer) -> None:
    if call.optional("Shape"):
        wanted = call.read("Shape")
        if to.dtype(wanted) != "INT64":
            wanted = to.cast(wanted, "INT64")
        to.add("Reshape", (call.read("X"), wanted), call.output())
        return
    sizes = call.ints("shape") if not call.optional("ShapeTensor") else to.sizes(call.output())
    to.reshape(call.read("X"), _filled(sizes, call, to), call.output())


def _filled(sizes: Sequence[int], call: Call, to: Writer) -> Tuple[int, ...]:
    """A target shape without zeros: they stand for the input's length at the place."""
    shape = to.shape(call.read("X"))
    resolved: List[int] = []
    for place, size in enumerate(sizes):
        length: Optional[int] = size
        if size == 0 and place < len(shape):
            length = shape[place]
        resolved.append(-1 if length is None else length)
    if resolved.count(-1) > 1:
        return to.sizes(call.output())
    return tuple(resolved)


@row("flatten", "flatten2", "flatten_contiguous_range")
def _flatten(call: Call, to: Writer) -> None:
    source = call.read("X")
    shape = to.shape(source)
    if call.type == "flatten_contiguous_range":
        start = to.axis(int(call.get("start_axis", 1)), source)
        stop = to.axis(int(call.get("stop_axis", 1)), source)
        if start == 1 and stop == len(shape) - 1 and len(shape) > 1:
            to.add("Flatten", (source,), call.output(), {"axis": 1})
            return
        sizes = [*shape[:start], None, *shape[stop + 1 :]]
        to.reshape(source, _unknown_once(sizes, call, to), call.output())
    else:
        to.add("Flatten", (source,), call.output(), {"axis": int(call.get("axis", 1))})


def _unknown_once(sizes: Sequence[Optional[int]], call: Call, to: Writer) -> Tuple[int, ...]:
    lengths = tuple(-1 if size is None else size for size in sizes)
    return lengths if lengths.count(-1) <= 1 else to.sizes(call.output())


@row("transpose", "transpose2")
def _transpose(call: Call, to: Writer) -> None:
    rank = len(to.shape(call.read("X")))
    to.transpose(call.read("X"), [axis % max(rank, 1) for axis in call.ints("axis")], call.output())


@row("squeeze", "squeeze2")
def _squeeze(call: Call, to: Writer) -> None:
    source = call.read("X")
    shape = to.shape(source)
    axes = [to.axis(axis, source) for axis in call.ints("axes")] or list(range(len(shape)))
    axes = [axis for axis in dict.fromkeys(axes) if shape[axis] == 1]
    if axes:
        to.add("Squeeze", (source,), call.output(), {"axes": tuple(sorted(axes))})
    else:
        to.add("Identity", (source,), call.output())


@row("unsqueeze", "unsqueeze2")
def _unsqueeze(call: Call, to: Writer) -> None:
    source = call.read("X")
    rank = len(to.shape(source))
    axes: List[int] = []
    for axis in call.ints("axes"):
        rank += 1
        place = axis % rank
        axes = [*(other + (other >= place) for other in axes), place]
    to.add("Unsqueeze", (source,), call.output(), {"axes": tuple(sorted(axes))})


@row("concat")
def _concat(call: Call, to: Writer) -> None:
    names = call.inputs.get("X", ())
    to.add("Concat", names, call.output(), {"axis": to.axis(int(call.get("axis", 0)), names[0])})


@row("stack")
def _stack(call: Call, to: Writer) -> None:
    names = call.inputs.get("X", ())
    shape = to.shape(names[0])
    place = int(call.get("axis", 0)) % (len(shape) + 1)
    wider = (*shape[:place], 1, *shape[place:])
    parts = [to.add("Unsqueeze", (name,), None, {"axes": (place,)}, shape=wider) for name in names]
    to.add("Concat", parts, call.output("Y", "Out"), {"axis": place})


@row("unstack", "unbind")
def _unstack(call: Call, to: Writer) -> None:
    source = call.read("X")
    names = call.outputs.get("Y") or call.outputs.get("Out") or ()
    axis = to.axis(int(call.get("axis", 0)), source)
    shape = to.shape(source)
    narrow = (*shape[:axis], 1, *shape[axis + 1 :])
    parts = [to.fresh("Split", to.dtype(source), narrow) for _ in names]
    to.add("Split", (source,), parts, {"axis": axis, "split": tuple(1 for _ in names)})
    for part, name in zip(parts, names):
        to.add("Squeeze", (part,), name, {"axes": (axis,)})


@row("split")
def _split(call: Call, to: Writer) -> None:
    source, names = call.read("X"), call.outputs.get("Out", ())
    axis = to.axis(int(call.get("axis", 0)), source)
    sections = list(call.ints("sections"))
    whole = to.shape(source)[axis]
    if sections.count(-1) == 1 and whole is not None:
        sections[sections.index(-1)] = whole - sum(size for size in sections if size >= 0)
    attributes = {"axis": axis, **({"split": tuple(sections)} if sections and -1 not in sections else {})}
    to.add("Split", (source,), names, attributes)


@row("slice", "strided_slice")
def _slice(call: Call, to: Writer) -> None:
    source = call.read("Input")
    if any(call.inputs.get(slot) for slot in ("StartsTensor", "StartsTensorList", "EndsTensor", "EndsTensorList")):
        raise IRError(f"{call.type} of {source!r} has bounds that are tensors; give them as numbers")
    axes = [to.axis(axis, source) for axis in call.ints("axes")]
    strides = list(call.ints("strides", [1] * len(axes)))
    # Going backwards, Paddle's -1 is the place before the first element, which is -1 - length elsewhere.
    ends = [-_FAR if end == -1 and step < 0 else end for end, step in zip(call.ints("ends"), strides)]
    bounds = [list(call.ints("starts")), ends, axes, strides]
    inputs = [to.constant([max(min(value, _FAR), -_FAR) for value in values], "INT64") for values in bounds]
    removed = tuple(sorted(axis % max(len(to.shape(source)), 1) for axis in call.ints("decrease_axis")))
    if not removed:
        to.add("Slice", (source, *inputs), call.output())
        return
    shape = [1 if place in removed else size for place, size in enumerate(to.shape(source))]
    for axis, start, end, step in zip(axes, *bounds[:2], bounds[3]):
        if axis not in removed:
            shape[axis] = _length(to.shape(source)[axis], start, end, step)
    cut = to.add("Slice", (source, *inputs), None, None, shape=shape)
    if to.shape(call.output()) == (1,) and len(removed) == len(shape):
        to.reshape(cut, (1,), call.output())  # programs of before Paddle 2.5 have no tensors without dimensions
    else:
        to.add("Squeeze", (cut,), call.output(), {"axes": removed})


def _length(whole: Optional[int], start: int, end: int, step: int) -> Optional[int]:
    return None if whole is None else len(range(*slice(start, end, step).indices(whole)))


_REPEATS = ("Shape", "expand_shapes_tensor", "RepeatTimes", "repeat_times_tensor", "expand_times_tensor")


@row("expand", "expand_v2", "tile")
def _repeat(call: Call, to: Writer) -> None:
    source = call.read("X")
    if any(call.inputs.get(slot) for slot in _REPEATS):
        raise IRError(f"{call.type} of {source!r} repeats it as often as tensors say; give numbers")
    if call.type == "expand_v2":
        sizes = [1 if size == -1 else size for size in call.ints("shape")]
        to.add("Expand", (source, to.constant(sizes, "INT64")), call.output())
        # Paddle declares 1 where a length is kept.
        to.tensors[call.output()] = replace(to.tensors[call.output()], shape=_expanded(to.shape(source), sizes))
        return
    times = list(call.ints("expand_times" if call.type == "expand" else "repeat_times"))
    rank = len(to.shape(source))
    if len(times) > rank:
        shape = (*(1 for _ in times[rank:]), *to.shape(source))
        source = to.add("Unsqueeze", (source,), None, {"axes": tuple(range(len(times) - rank))}, shape=shape)
    times = [1] * (rank - len(times)) + times
    to.add("Tile", (source, to.constant(times, "INT64")), call.output())


def _expanded(shape: Sequence[Optional[int]], sizes: Sequence[int]) -> Optional[Shape]:
    try:
        return broadcast(tuple(shape), tuple(sizes))
    except MismatchError as mismatch:
        raise IRError(f"expand: {mismatch}") from None


@row("expand_as_v2")
def _expand_as(call: Call, to: Writer) -> None:
    sizes = [1 if size == -1 else size for size in call.ints("target_shape")]
    to.add("Expand", (call.read("X"), to.constant(sizes, "INT64")), call.output())


@row("flip")
def _flip(call: Call, to: Writer) -> None:
    source = call.read("X")
    axes = [to.axis(axis, source) for axis in call.ints("axis")]
    bounds = ([-1] * len(axes), [-_FAR] * len(axes), axes, [-1] * len(axes))
    to.add("Slice", (source, *(to.constant(list(values), "INT64") for values in bounds)), call.output())


@row("roll")
def _roll(call: Call, to: Writer) -> None:
    source, axes, shifts = call.read("X"), call.ints("axis"), call.ints("shifts")
    if not axes:
        raise IRError(f"roll of {source!r} names no axis; give one for every shift")
    for place, (axis, shift) in enumerate(zip(axes, shifts), 1):
        at = to.axis(axis, source)
        whole = to.shape(source)[at]
        if whole is None:
            raise IRError(f"roll needs the length of {source!r} along axis {at}, which is unknown")
        cut = shift % max(whole, 1)
        shape = to.shape(source)
        sizes = (whole - cut, cut)
        parts = [to.fresh("Split", to.dtype(source), (*shape[:at], size, *shape[at + 1 :])) for size in sizes]
        to.add("Split", (source,), parts, {"axis": at, "split": sizes})
        source = to.add("Concat", parts[::-1], call.output() if place == len(axes) else None, {"axis": at}, shape=shape)


@row("gather", "index_select")
def _gather(call: Call, to: Writer) -> None:
    axis = int(call.get("dim", 0) if call.type == "index_select" else call.get("axis", 0))
    to.add("Gather", (call.read("X"), call.read("Index")), call.output(), {"axis": axis})


@row("gather_nd")
def _gather_nd(call: Call, to: Writer) -> None:
    index = call.read("Index")
    index = index if to.dtype(index) == "INT64" else to.cast(index, "INT64")
    to.add("GatherND", (call.read("X"), index), call.output())


@row("take_along_axis")
def _take(call: Call, to: Writer) -> None:
    source = call.read("Input")
    axis = to.axis(int(call.get("Axis", 0)), source)
    to.add("GatherElements", (source, call.read("Index")), call.output("Result"), {"axis": axis})


@row("scatter")
def _scatter(call: Call, to: Writer) -> None:
    source, index = call.read("X"), call.read("Ids")
    index = index if to.dtype(index) == "INT64" else to.cast(index, "INT64")
    count = len(to.shape(index))
    column = to.add("Unsqueeze", (index,), None, {"axes": (count,)}, dtype="INT64", shape=(*to.shape(index), 1))
    if call.get("overwrite", True):
        to.add("ScatterND", (source, column, call.read("Updates")), call.output())
    else:
        _scatter_sum(call, to, index, column)


def _scatter_sum(call: Call, to: Writer, index: str, column: str) -> None:
    """Rows that are named are emptied, and get the sum of what is written to them."""
    source, updates = call.read("X"), call.read("Updates")
    dtype = to.dtype(source)
    lines, *row_sizes = (length_of(length, source) for length in to.shape(source))
    sizes = [length_of(length, updates) for length in to.shape(updates)]
    emptied = to.add("ScatterND", (source, column, to.full(0, dtype, sizes)))
    depth, values = to.constant(lines, "INT64"), to.constant([0, 1], dtype)
    targets = to.add("OneHot", (index, depth, values), None, {"axis": 0}, dtype=dtype, shape=(lines, sizes[0]))
    width = math.prod(row_sizes)
    added = to.add("MatMul", (targets, to.reshape(updates, (sizes[0], width))), None, None, shape=(lines, width))
    to.add("Add", (emptied, to.reshape(added, (lines, *row_sizes))), call.output())


@row("lookup_table", "lookup_table_v2")
def _lookup(call: Call, to: Writer) -> None:
    ids = call.read("Ids")
    if call.type == "lookup_table" and to.shape(ids)[-1:] == (1,):
        place = len(to.shape(ids)) - 1
        ids = to.add("Squeeze", (ids,), None, {"axes": (place,)}, shape=to.shape(ids)[:-1])
    to.add("Gather", (call.read("W"), ids), call.output(), {"axis": 0})


@row("one_hot", "one_hot_v2")
def _one_hot(call: Call, to: Writer) -> None:
    source, output = call.read("X"), call.output()
    if call.type == "one_hot" and to.shape(source)[-1:] == (1,):
        place = len(to.shape(source)) - 1
        source = to.add("Squeeze", (source,), None, {"axes": (place,)}, shape=to.shape(source)[:-1])
    depth = to.constant(int(call.get("depth", 1)), "INT64")
    to.add("OneHot", (source, depth, to.constant([0, 1], to.dtype(output))), output, {"axis": -1})


@row("top_k", "top_k_v2")
def _top_k(call: Call, to: Writer) -> None:
    source = call.read("X")
    axis = to.axis(int(call.get("axis", -1)), source)
    count = to.constant([int(call.get("k", 1))], "INT64")
    attributes = {"axis": axis, "largest": int(bool(call.get("largest", True))), "sorted": 1}
    _with_indices("TopK", (source, count), call, to, attributes)


@row("argsort")
def _argsort(call: Call, to: Writer) -> None:
    source = call.read("X")
    axis = to.axis(int(call.get("axis", -1)), source)
    whole = to.shape(source)[axis]
    if whole is None:
        raise IRError(f"argsort needs the length of {source!r} along axis {axis}, which is unknown")
    attributes = {"axis": axis, "largest": int(bool(call.get("descending", False))), "sorted": 1}
    _with_indices("TopK", (source, to.constant([whole], "INT64")), call, to, attributes)


def _with_indices(type: str, inputs: Sequence[str], call: Call, to: Writer, attributes: object) -> None:
    """An op that makes values and, in 64 bits, where they were."""
    values, indices = call.output(), call.output("Indices")
    if to.dtype(indices) == "INT64":
        to.add(type, inputs, (values, indices), dict(attributes))  # type: ignore[call-overload]
        return
    wide = to.fresh("Indices", "INT64", to.shape(indices))
    to.add(type, inputs, (values, wide), dict(attributes))  # type: ignore[call-overload]
    to.cast(wide, to.dtype(indices), indices)


@row("arg_max", "arg_min")
def _arg(call: Call, to: Writer) -> None:
    source, output = call.read("X"), call.output()
    axis = int(call.get("axis", -1))
    kept = bool(call.get("keepdims", False))
    if call.get("flatten", False):
        sizes = (*(1 for _ in to.shape(source)[1:]), -1) if kept else (-1,)  # all dimensions are kept
        source, axis = to.reshape(source, sizes), len(sizes) - 1
    attributes = {"axis": to.axis(axis, source), "keepdims": int(kept)}
    type = "ArgMax" if call.type == "arg_max" else "ArgMin"
    if to.dtype(output) == "INT64":
        to.add(type, (source,), output, attributes)
        return
    to.cast(to.add(type, (source,), None, attributes, dtype="INT64", shape=to.shape(output)), to.dtype(output), output)


@row("cast")
def _cast(call: Call, to: Writer) -> None:
    wanted = dtype_of(call.get("out_dtype"))
    declared = to.dtype(call.output())
    to.cast(call.read("X"), declared if declared in ("INT32", "FLOAT", "FLOAT16") else wanted, call.output())


@row("pad", "pad2d", "pad3d")
def _pad(call: Call, to: Writer) -> None:
    source, output = call.read("X"), call.output()
    rank = len(to.shape(source))
    paddings = call.ints("paddings")
    ends = [(paddings[2 * place], paddings[2 * place + 1]) for place in range(len(paddings) // 2)]
    if call.type == "pad3d":
        ends = ends[::-1]  # the last dimension comes first
    if call.type != "pad":
        first = call.get("data_format", "NCHW") in ("NCHW", "NCDHW")
        ends = [(0, 0), (0, 0), *ends] if first else [(0, 0), *ends, (0, 0)]
    if len(ends) != rank:
        raise IRError(f"{call.type} pads {len(ends)} dimensions of {source!r}, which has {rank}")
    pads = to.constant([low for low, _ in ends] + [high for _, high in ends], "INT64")
    mode = {"replicate": "edge"}.get(call.get("mode", "constant"), call.get("mode", "constant"))
    value = float(call.get("value", call.get("pad_value", 0.0)))
    filling = (to.number(value, source),) if mode == "constant" and to.dtype(source) in FLOATS else ()
    to.add("Pad", (source, pads, *filling), output, {"mode": mode})


@row("pixel_shuffle")
def _pixel_shuffle(call: Call, to: Writer) -> None:
    source, factor = call.read("X"), int(call.get("upscale_factor", 1))
    count, channels, height, width = to.sizes(source)
    if -1 in (channels, height, width) or factor < 1:
        raise IRError(f"pixel_shuffle needs channels, height and width of {source!r}, and a positive factor")
    apart = to.reshape(source, (count, channels // factor**2, factor, factor, height, width))
    turned = to.transpose(apart, (0, 1, 4, 2, 5, 3))
    to.reshape(turned, (count, channels // factor**2, height * factor, width * factor), call.output())
