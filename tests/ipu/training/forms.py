"""The graph of a net as its layers say it: what every framework's dump of its inference is a form of."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Tuple

import numpy as np

from ipu_conformance.ir import Graph, Op, Tensor
from ipu_conformance.nets import INPUT, Layer, Net

OPS: Mapping[str, Tuple[str, Callable[[Layer], Dict[str, Any]]]] = {
    "linear": ("Gemm", lambda layer: {"transB": 1}),
    "tanh": ("Tanh", lambda layer: {}),
    "relu": ("Relu", lambda layer: {}),
    "add": ("Add", lambda layer: {}),
    "dropout": ("Identity", lambda layer: {}),
    "flatten": ("Flatten", lambda layer: {"axis": layer.attributes["start"]}),
    "conv": ("Conv", lambda layer: _window(layer)),
    "max_pool": ("MaxPool", lambda layer: _window(layer)),
    "avg_pool": ("AveragePool", lambda layer: _window(layer)),
    "batch_norm": ("BatchNormalization", lambda layer: {"epsilon": layer.attributes["epsilon"]}),
}
"""The op of ONNX that each op of the small nets is, and its attributes."""


def _window(layer: Layer) -> Dict[str, Any]:
    words = layer.attributes
    stride, padding = words.get("stride", 1), words.get("padding", 0)
    kernel = {"kernel_shape": (words["kernel"],) * 2} if "kernel" in words else {}
    return {"strides": (stride, stride), "pads": (padding,) * 4, **kernel}


def graph_of(net: Net, samples: int) -> Graph:
    """The inference of a net for so many samples."""
    shapes = {each.name: each.shape for each in (*net.weights, *net.statistics)}
    tensors: List[Tensor] = [Tensor(INPUT, "FLOAT", (samples, *net.input_shape))]
    tensors += [Tensor(name, "FLOAT", shape) for name, shape in shapes.items()]
    made = _shapes(net, samples)
    ops: List[Op] = []
    for layer in net.layers:
        type, attributes = OPS[layer.op]
        held = [*layer.weights]
        if layer.op == "batch_norm":
            held += [f"{layer.name}.running_mean", f"{layer.name}.running_var"]
        ops.append(Op(type, layer.name, (*layer.inputs, *held), (layer.name,), attributes(layer)))
        tensors.append(Tensor(layer.name, "FLOAT", made[layer.name]))
    return Graph(net.name, ops, [INPUT], [net.layers[-1].name], tensors, list(shapes))


def _shapes(net: Net, samples: int) -> Dict[str, Tuple[int, ...]]:
    """The shape of every value: that of a window's result follows from its words, of a product from its weight."""
    weights = {each.name: each.shape for each in net.weights}
    shapes: Dict[str, Tuple[int, ...]] = {INPUT: (samples, *net.input_shape)}
    for layer in net.layers:
        before = shapes[layer.inputs[0]]
        if layer.op == "linear":
            shape = (*before[:-1], weights[layer.weights[0]][0])
        elif layer.op == "flatten":
            shape = (samples, int(np.prod(before[1:])))
        elif layer.op in ("conv", "max_pool", "avg_pool"):
            words = layer.attributes
            kernel = weights[layer.weights[0]][2] if layer.weights else words["kernel"]
            channels = weights[layer.weights[0]][0] if layer.weights else before[1]
            space = [
                (length + 2 * words.get("padding", 0) - kernel) // words.get("stride", 1) + 1 for length in before[2:]
            ]
            shape = (samples, channels, *space)
        else:
            shape = before
        shapes[layer.name] = shape
    return shapes
