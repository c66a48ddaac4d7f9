"""Rows for the ops of Paddle's that write to parts of tensors, spread them over grids, or count what labels meet."""

from __future__ import annotations

import math
from typing import Sequence

from ipu_conformance.ir.readers.op_writer import length_of
from ipu_conformance.ir.readers.paddle.ops import Call, Writer, row
from ipu_conformance.ir.tensor import IRError

_BOUNDS = ("StartsTensorList", "EndsTensorList", "StepsTensorList")


@row("meshgrid")
def _meshgrid(call: Call, to: Writer) -> None:
    names, outputs = call.inputs.get("X", ()), call.outputs.get("Out", ())
    lengths = [math.prod(length_of(length, name) for length in to.shape(name)) for name in names]
    for place, (name, output) in enumerate(zip(names, outputs)):
        line = to.reshape(name, [length if other == place else 1 for other, length in enumerate(lengths)])
        to.add("Expand", (line, to.constant(lengths, "INT64")), output)


@row("set_value")
def _set_value(call: Call, to: Writer) -> None:
    """Each dimension lists the places that are written and the places of the value that go there; the rest stays."""
    source, output = call.read("Input"), call.output()
    if any(call.inputs.get(slot) for slot in _BOUNDS):
        raise IRError(f"set_value of {source!r} has bounds that are tensors; give them as numbers")
    if call.ints("none_axes"):
        raise IRError(f"set_value of {source!r} adds dimensions to what it writes; leave None out of the index")
    lengths = [length_of(length, source) for length in to.shape(source)]
    written = [list(range(length)) for length in lengths]
    axes = [to.axis(axis, source) for axis in call.ints("axes")]
    for axis, start, end, step in zip(axes, call.ints("starts"), call.ints("ends"), call.ints("steps")):
        written[axis] = list(range(*slice(start, end, step).indices(lengths[axis])))
    value = _aligned(call, to, written)
    for axis, (places, length) in enumerate(zip(written, lengths)):
        if to.shape(value)[axis] == 1:
            continue
        index = to.constant([places.index(place) if place in places else 0 for place in range(length)], "INT64")
        shape = [length if other == axis else size for other, size in enumerate(to.shape(value))]
        value = to.add("Gather", (value, index), None, {"axis": axis}, shape=shape)
    mask = _mask(to, written, lengths)
    to.add("Where", (mask, value, source) if mask else (to.constant(True, "BOOL"), value, source), output)


def _aligned(call: Call, to: Writer, written: Sequence[Sequence[int]]) -> str:
    """The value with a length for every dimension of what it is written to: that of the part, or 1."""
    value = call.optional("ValueTensor")
    source = call.read("Input")
    if not value:
        value = to.constant(list(call.get("values", ())), to.dtype(source), call.ints("shape"))
    lengths = [length_of(length, value) for length in to.shape(value)]
    removed = {to.axis(axis, source) for axis in call.ints("decrease_axes")}
    kept = [axis for axis in range(len(written)) if axis not in removed]
    sizes = [1] * len(written)
    for axis, length in zip(reversed(kept), reversed(lengths)):
        sizes[axis] = length
    fits = all(size in (1, len(places)) for size, places in zip(sizes, written))
    if math.prod(sizes) != math.prod(lengths) or not fits:
        part = tuple(len(written[axis]) for axis in kept)
        raise IRError(f"set_value writes {tuple(to.shape(value))} to a part of {part}; they must broadcast")
    return to.reshape(value, sizes)


def _mask(to: Writer, written: Sequence[Sequence[int]], lengths: Sequence[int]) -> str:
    """Where a value is written, or the empty name where it is everywhere."""
    mask = ""
    rank = len(lengths)
    for axis, (places, length) in enumerate(zip(written, lengths)):
        if len(places) == length:
            continue
        sizes = [length if other == axis else 1 for other in range(rank)]
        axis_mask = to.constant([place in places for place in range(length)], "BOOL", sizes)
        if mask:
            shape = [max(length_of(a, mask), b) for a, b in zip(to.shape(mask), sizes)]
            axis_mask = to.add("And", (mask, axis_mask), None, None, shape=shape)
        mask = axis_mask
    return mask


@row("scatter_nd_add")
def _scatter_nd_add(call: Call, to: Writer) -> None:
    """Each line of the updates goes, by a product with zeros and ones, to the line that its index names."""
    source, index, updates = call.read("X"), call.read("Index"), call.read("Updates")
    lengths = [length_of(length, source) for length in to.shape(source)]
    *outer, depth = (length_of(length, index) for length in to.shape(index))
    lines, width, count = math.prod(lengths[:depth]), math.prod(lengths[depth:]), math.prod(outer)
    dtype = to.dtype(source)
    whole = index if to.dtype(index) == "INT64" else to.cast(index, "INT64")
    steps = to.constant([math.prod(lengths[place + 1 : depth]) for place in range(depth)], "INT64")
    parts = to.add("Mul", (to.reshape(whole, (count, depth)), steps), None, None, shape=(count, depth))
    places = to.add("ReduceSum", (parts,), None, {"axes": (1,), "keepdims": 0}, shape=(count,))
    sizes, values = to.constant(lines, "INT64"), to.constant([0, 1], dtype)
    targets = to.add("OneHot", (places, sizes, values), None, {"axis": 0}, dtype=dtype, shape=(lines, count))
    added = to.add("MatMul", (targets, to.reshape(updates, (count, width))), None, None, shape=(lines, width))
    to.add("Add", (source, to.reshape(added, lengths)), call.output())


@row("accuracy")
def _accuracy(call: Call, to: Writer) -> None:
    indices, label = call.read("Indices"), call.read("Label")
    count, chosen = (length_of(length, indices) for length in to.shape(indices))
    label = label if to.dtype(label) == to.dtype(indices) else to.cast(label, to.dtype(indices))
    met = to.add("Equal", (indices, label), None, None, dtype="BOOL", shape=(count, chosen))
    lines = to.add("ReduceMax", (to.cast(met, "INT32"),), None, {"axes": (1,), "keepdims": 0}, shape=(count,))
    matched = to.add("ReduceSum", (lines,), None, {"axes": (0,), "keepdims": 0}, shape=())
    total = to.constant(count, "INT32")
    share = to.add("Div", (to.cast(matched, "FLOAT"), to.constant(float(count), "FLOAT")))
    for number, slot in ((matched, "Correct"), (total, "Total"), (share, "Accuracy")):
        output = call.output(slot)
        # Programs of before Paddle 2.5 have one dimension here, and counts may be declared of any type.
        to.cast(to.reshape(number, to.sizes(output)), to.dtype(output), output)
