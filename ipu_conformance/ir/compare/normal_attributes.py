"""The attributes of ops in full, so that those that are written and those that are meant are the same."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ipu_conformance.ir.graph import Graph, Op

COPY = "IpuCopy"
_LARGEST = 3.4e38
"""Below it a number has a place among those of 32 bits."""
_MARKS = ("recompute", "availableMemoryProportion")
_WINDOWS = ("Conv", "ConvTranspose", "MaxPool", "AveragePool")
_KERNELS = ("Conv", "ConvTranspose")
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "Conv": {"group": 1},
    "ConvTranspose": {"group": 1},
    "MaxPool": {"ceil_mode": 0, "storage_order": 0},
    "AveragePool": {"ceil_mode": 0, "count_include_pad": 0},
    "LeakyRelu": {"alpha": 0.01},
    "Elu": {"alpha": 1.0},
}
_AXES = {"Softmax": 1, "LogSoftmax": 1, "Concat": 0, "Gather": 0}
"""The types with one axis, and what it is where it is not written."""


def attributes(op: Op, graph: Graph) -> Dict[str, Any]:
    """All attributes of an op, those left out included."""
    attributes_in_full: Dict[str, Any] = {**_DEFAULTS.get(op.type, {}), **op.attributes}
    shape = graph.tensors[op.inputs[0]].shape if op.inputs and op.inputs[0] else None
    if shape is None:
        return attributes_in_full
    if op.type in _WINDOWS and len(shape) > 2:
        _window(op, graph, shape, attributes_in_full)
    elif op.type in _AXES:
        axis = attributes_in_full.get("axis", _AXES[op.type])
        if isinstance(axis, int) and -len(shape) <= axis < len(shape):
            attributes_in_full["axis"] = axis % len(shape)
    elif op.type == "Transpose":
        attributes_in_full.setdefault("perm", tuple(range(len(shape)))[::-1])
    return attributes_in_full


def unplaced(graph: Graph) -> Graph:
    """The graph without IPUs, stages and a compiler's marks; a copy is an Identity, and no input is read by nobody."""
    ops = []
    for op in graph.ops:
        kept = {key: _single(value) for key, value in op.attributes.items() if not _mark(op, key, value)}
        ops.append(replace(op, type="Identity" if op.type == COPY else op.type, attributes=kept, ipu=None, stage=None))
    read = {name for op in graph.ops for name in op.inputs}
    inputs = tuple(name for name in graph.inputs if name in read)
    dropped = set(graph.inputs) - set(inputs)
    tensors = {name: tensor for name, tensor in graph.tensors.items() if name not in dropped}
    return replace(graph, ops=tuple(ops), inputs=inputs, tensors=tensors)


def _single(value: Any) -> Any:
    """A number in 32 bits, which some formats hold and others widen."""
    if isinstance(value, float) and abs(value) < _LARGEST:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    return value


def _mark(op: Op, key: str, value: Any) -> bool:
    """Does an attribute say nothing of what is computed?"""
    if op.type == COPY or key in _MARKS or key.startswith("__"):
        return True
    if op.type == "BatchNormalization" and len([name for name in op.outputs if name]) == 1:
        return key in ("momentum", "training", "spatial")
    return op.type == "AveragePool" and key == "dilations" and set(value) == {1}


def _window(op: Op, graph: Graph, shape: Sequence[Any], attributes: Dict[str, Any]) -> None:
    rank = len(shape) - 2
    kernel = graph.tensors[op.inputs[1]].shape if op.type in _KERNELS and len(op.inputs) > 1 and op.inputs[1] else None
    if kernel is not None and None not in kernel:
        attributes.setdefault("kernel_shape", tuple(kernel[2:]))
    attributes.setdefault("strides", (1,) * rank)
    if op.type != "AveragePool":  # whose windows have no gaps before opset 19
        attributes.setdefault("dilations", (1,) * rank)
    kind = attributes.get("auto_pad", "NOTSET")
    if kind in ("NOTSET", "VALID"):
        attributes.pop("auto_pad", None)
        attributes.setdefault("pads", (0,) * (2 * rank))
    elif kind == "SAME_UPPER" and op.type != "ConvTranspose" and None not in shape[2:]:
        pads = _same(shape[2:], attributes, rank)
        if pads:
            attributes.pop("auto_pad")
            attributes["pads"] = pads


def _same(space: Sequence[int], attributes: Dict[str, Any], rank: int) -> Tuple[int, ...]:
    """The paddings that keep the length, or its part by the stride, with the larger half behind."""
    lists = [attributes.get(key, (1,) * rank) for key in ("kernel_shape", "strides", "dilations")]
    if any(not isinstance(values, tuple) or len(values) != rank for values in lists):
        return ()
    total: List[int] = []
    for length, size, step, gap in zip(space, *lists):
        if not all(isinstance(value, int) and value > 0 for value in (size, step, gap)):
            return ()
        total.append(max((-(-length // step) - 1) * step + gap * (size - 1) + 1 - length, 0))
    return (*(whole // 2 for whole in total), *(whole - whole // 2 for whole in total))
