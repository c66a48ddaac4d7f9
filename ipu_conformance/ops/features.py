"""What is special about a call of an op: the geometry, the broadcasting and the indices that an edge is made of."""

from __future__ import annotations

import itertools
from typing import Any, Iterator, Mapping, Sequence, Set

import numpy as np

from ipu_conformance.oracle.op import Op
from ipu_conformance.oracle.sample import Sample

AXES = ("axis", "axes", "axis1", "axis2")
WINDOWS = ("convolution", "pooling")
FROM_THE_LEFT = "an operand that fits from the left as well"
LONG_AXIS = 16
"""Above it a device computes several vectors of an axis and, unless they divide it, a rest."""
FIRST_BLOCKS, LAST_BLOCKS = "a first axis of several blocks", "a last axis of several blocks"
BLOCK = 64
"""Above it, and above twice as much, a device cuts an axis into blocks."""


def features(op: Op, sample: Sample) -> Set[str]:
    """The words for what a sample of ``op`` exercises; a table of cases covers all that an op can have."""
    words = {f"{len(sample.inputs)} inputs", f"rank {max((x.ndim for x in sample.inputs), default=0)}"}
    words.update(_attributes(sample.attributes))
    words.update(_shapes(op, sample.inputs))
    words.update(_axes(sample))
    if sample.attributes.get("mode") == "constant" and sample.attributes.get("value"):
        words.add("a border of numbers")
    words.update(_indices(sample.inputs))
    if op.family in WINDOWS:
        geometry = set(_windows(sample))
        words.update(geometry)
        words.update(f"{one} and {other}" for one, other in itertools.combinations(sorted(geometry), 2))
    return words


def _attributes(attributes: Mapping[str, Any]) -> Iterator[str]:
    for key, value in attributes.items():
        if key in AXES:
            numbers = value if isinstance(value, tuple) else (value,)
            if any(isinstance(number, int) and number < 0 for number in numbers):
                yield f"negative {key}"
            yield f"{key} of {len(value)}" if isinstance(value, tuple) else f"one {key}" if value is not None else key
        elif isinstance(value, (bool, str)) or value is None:
            yield f"{key}={value}"
        elif isinstance(value, (int, float)):
            yield f"{key}={np.sign(value):+.0f}"


def _axes(sample: Sample) -> Iterator[str]:
    """Where a single axis is: an op that always takes the first, or the last, is right about that one."""
    axis = sample.attributes.get("axis")
    rank = max((x.ndim for x in sample.inputs), default=0)
    if isinstance(axis, int) and not isinstance(axis, bool) and rank > 1:
        yield "the first axis" if axis % rank == 0 else "the last axis" if axis % rank == rank - 1 else "an inner axis"


def _shapes(op: Op, inputs: Sequence[np.ndarray]) -> Iterator[str]:
    if any(1 in x.shape for x in inputs):
        yield "an axis of one"
    if inputs and inputs[0].ndim:
        parity = "odd" if inputs[0].shape[-1] % 2 else "even"
        yield f"an {parity} last axis"
        if inputs[0].shape[-1] > LONG_AXIS:
            yield f"a long {parity} axis"
        if inputs[0].shape[-1] > 2 * BLOCK:
            yield LAST_BLOCKS
        if inputs[0].ndim > 1 and inputs[0].shape[0] > BLOCK:
            yield FIRST_BLOCKS
    if op.family in ("elementwise", "compare") and len(inputs) > 1:
        whole = np.broadcast_shapes(*(x.shape for x in inputs))
        for place, x in enumerate(inputs):
            if x.shape != whole:
                if 0 < x.ndim < len(whole) and x.shape == whole[: x.ndim] and max(x.shape) > 1:
                    yield FROM_THE_LEFT
                yield f"input {place} broadcast over {'new axes' if x.ndim < len(whole) else 'its axes'}"


def _indices(inputs: Sequence[np.ndarray]) -> Iterator[str]:
    for x in inputs:
        if x.dtype.kind == "i" and x.size:
            if len(np.unique(x)) < x.size:
                yield "repeated indices"
            if x.min() < 0:
                yield "negative indices"


def _windows(sample: Sample) -> Iterator[str]:
    attributes = sample.attributes
    kernel = attributes.get("kernel") or (sample.inputs[1].shape[2:] if len(sample.inputs) > 1 else ())
    stride = attributes.get("stride", ())
    if any(size % 2 == 0 for size in kernel):
        yield "an even kernel"
    if any(size % 2 for size in kernel):
        yield "an odd kernel"
    if kernel and max(kernel) == 1:
        yield "a kernel of one"
    if any(step > size for step, size in zip(stride, kernel)):
        yield "a stride above the kernel"
    if len(set(stride)) > 1:
        yield "unequal strides"
    dilation = attributes.get("dilation", ()) or ()
    if any(step > 1 and size > 1 for step, size in zip(dilation, kernel)):
        yield "dilation"
        if len(kernel) == 2 and len(set(dilation)) > 1:
            yield "unequal dilations"
    if attributes.get("groups", 1) > 1:
        yield "groups"
        if attributes["groups"] == sample.inputs[0].shape[1]:
            yield "a group for every channel"
    if any(attributes.get("output_padding", ())):
        yield "output padding"
    pairs = attributes.get("padding", ())
    if not isinstance(pairs, str):
        sides = sample.inputs[0].shape[2:]
        spans = [1 + (size - 1) * step for size, step in zip(kernel, dilation or (1,) * len(kernel))]
        free = [side + sum(pair) - span for side, pair, span in zip(sides, pairs, spans)]
        rests = [left % step for left, step in zip(free, stride)]
        if "count_include_pad" in attributes and any(map(any, pairs)):
            yield "a border that counts" if attributes["count_include_pad"] else "a border that does not count"
        if any(rests):
            yield "a rest"
        # A window that begins beyond the input and its lower padding is left out.
        begins = [-(-left // step) * step for left, step in zip(free, stride)]
        inside = [begin < side + pair[0] for begin, side, pair in zip(begins, sides, pairs)]
        if attributes.get("ceil_mode") and any(rest and fits for rest, fits in zip(rests, inside)):
            yield "one more window"
        if any(low != high for low, high in pairs):
            yield "asymmetric padding"
        if any(low == high > 0 for low, high in pairs):
            yield "symmetric padding"
