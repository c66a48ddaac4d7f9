"""What a graph is given: values that it holds, and streams of micro-batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Mapping, Optional, Tuple

import numpy as np

from ipu_conformance.interpreter.calls import Array, ExecutionError, decoded, wide
from ipu_conformance.interpreter.updates import STATE
from ipu_conformance.ir.graph import Graph
from ipu_conformance.ir.tensor import Shape, shape_text

DROPOUT, UNIFORM = "Dropout", "tensorflow::RandomUniform"
KEPT = ":kept"
"""What follows the name of a Dropout's result, or of what is drawn for one, in that of its mask."""
SHOWN = 8
"""How many names a sentence lists."""

Counts = Tuple[int, int, int]
"""Updates, micro-batches of an update, and replicas."""


@dataclass(frozen=True)
class Feed:
    """What a graph holds at the start, and what it is fed: arrays with axes for updates, turns and replicas."""

    held: Mapping[str, Array]
    streams: Mapping[str, Array]
    counts: Counts


def feed(graph: Graph, given: Mapping[str, Array]) -> Feed:
    """The given arrays in their places; state of an optimizer that is not given begins with zeros.

    An array with the declared shape is held. One with three more axes in front is a stream of micro-batches: updates,
    turns of an update, replicas. One more axis in front stands for that many updates of one micro-batch. What a Dropout
    keeps is given as ones and zeros under the name of its result and ``:kept``; where TensorFlow draws numbers for one,
    under the name of these.
    """
    dropping = [op for op in graph.ops if op.type in (DROPOUT, UNIFORM) and op.outputs]
    masks = {op.outputs[0] + KEPT: op.outputs[0] for op in dropping}
    unmade = [*graph.inputs, *graph.initializers, *(name for name in masks if name in given)]
    unknown = sorted(set(given) - set(unmade))
    if unknown:
        takes = [*unmade[:SHOWN], "…"] if len(unmade) > SHOWN else unmade
        raise ExecutionError(
            f"{unknown[0]!r} is given, and graph {graph.name!r} has no such input or weight: it takes "
            f"{', '.join(takes) or 'none'}."
        )
    held: Dict[str, Array] = {}
    streams: Dict[str, Array] = {}
    for name in unmade:
        if name not in given:
            held[name] = _own(graph, name)
            continue
        tensor = graph.tensors[masks.get(name, name)]
        value, shape = _numbers(name, given[name], "FLOAT" if name in masks else tensor.dtype), tensor.shape
        extra = 0 if shape is None else value.ndim - len(shape)
        if extra not in (0, 1, 3) or not _fits(value.shape[extra:], shape):
            raise ExecutionError(
                f"{name!r} is given with shape {value.shape}: it takes {shape_text(shape)}, or one or three axes more "
                "in front (updates; updates, turns, replicas)."
            )
        if extra == 0:
            held[name] = value
        else:
            streams[name] = value if extra == 3 else value[:, None, None]
    counts = {value.shape[:3] for value in streams.values()}
    if len(counts) > 1:
        first, second = sorted(counts)[:2]
        raise ExecutionError(f"streams disagree: one has {first} updates, turns and replicas, another has {second}.")
    counted = next(iter(counts), (1, 1, 1))
    if 0 in counted:
        raise ExecutionError(f"streams have {counted} updates, turns and replicas: there must be one of each.")
    return Feed(held, streams, (counted[0], counted[1], counted[2]))


def _numbers(name: str, value: Array, dtype: str) -> Array:
    """The given numbers in 64 bits; an integer tensor takes whole numbers only."""
    kind = np.asarray(value).dtype.kind
    if kind not in "fiub":
        raise ExecutionError(f"{name!r} is given as {np.asarray(value).dtype}: it takes numbers of dtype {dtype}.")
    numbers = wide(value)
    if kind == "f" and dtype.lstrip("U").startswith("INT") and not np.array_equal(numbers, np.trunc(numbers)):
        raise ExecutionError(f"{name!r} is given with fractions: it takes whole numbers of dtype {dtype}.")
    return numbers


def _own(graph: Graph, name: str) -> Array:
    """The value that a graph carries, or the zeros that state begins with."""
    tensor, data = graph.tensors[name], graph.initializers.get(name)
    if data is not None:
        return decoded(data, tensor.dtype, tensor.shape or ())
    if name.startswith(STATE) and tensor.shape is not None and None not in tensor.shape:
        return np.zeros([length or 0 for length in tensor.shape])
    raise ExecutionError(f"{name!r} {shape_text(tensor.shape)} has no value in the dump: give it among the inputs.")


def _fits(actual: Tuple[int, ...], shape: Optional[Shape]) -> bool:
    return shape is None or all(length in (None, size) for size, length in zip(actual, shape))
