"""The graph of a net as its layers say it: what every framework's dump of its inference is a form of."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

import numpy as np

from ipu_conformance.ir import Graph, Op, Tensor
from ipu_conformance.nets import INPUT, Layer, Net
from ipu_conformance.oracle.training.composites import written_out

Shape = Tuple[int, ...]
GATES = (0, 3, 1, 2)
"""Where ONNX's gates of an LSTM are among a net's."""


class _Forms:
    """The ops and values of a graph so far."""

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self.shapes: Dict[str, Shape] = dict(shapes)
        self.ops: List[Op] = []

    def __call__(self, type: str, inputs: Sequence[str], output: str, shape: Sequence[int], **attributes: Any) -> str:
        """Add an op of one result."""
        self.shapes[output] = tuple(shape)
        self.ops.append(Op(type, output, tuple(inputs), (output,), attributes))
        return output


def _same(type: str, *words: str) -> Callable[[_Forms, Layer], None]:
    """An op whose result has the shape of what it reads, with some of its layer's attributes."""

    def form(to: _Forms, layer: Layer) -> None:
        attributes = {word: layer.attributes[word] for word in words}
        to(type, [*layer.inputs, *layer.weights], layer.name, to.shapes[layer.inputs[0]], **attributes)

    return form


def _linear(to: _Forms, layer: Layer) -> None:
    (x,), (weight, *bias) = layer.inputs, layer.weights
    shape = (*to.shapes[x][:-1], to.shapes[weight][0])
    if len(shape) == 2:
        to("Gemm", [x, weight, *bias], layer.name, shape, transB=1)
        return
    turned = to("Transpose", [weight], f"{layer.name}/as_factor", to.shapes[weight][::-1], perm=(1, 0))
    product = to("MatMul", [x, turned], f"{layer.name}/product" if bias else layer.name, shape)
    if bias:
        to("Add", [product, *bias], layer.name, shape)


def _window(type: str) -> Callable[[_Forms, Layer], None]:
    def form(to: _Forms, layer: Layer) -> None:
        before, words = to.shapes[layer.inputs[0]], layer.attributes
        stride, padding = words.get("stride", 1), words.get("padding", 0)
        weight = to.shapes[layer.weights[0]] if layer.weights else (before[1], 0, words.get("kernel", 0))
        space = [(length + 2 * padding - weight[2]) // stride + 1 for length in before[2:]]
        kernel = {"kernel_shape": (words["kernel"],) * 2} if "kernel" in words else {}
        shape = (before[0], weight[0], *space)
        where = {"strides": (stride, stride), "pads": (padding,) * 4, **kernel}
        to(type, [*layer.inputs, *layer.weights], layer.name, shape, **where)

    return form


def _upwards(to: _Forms, layer: Layer) -> None:
    samples, _, *space = to.shapes[layer.inputs[0]]
    _, channels, kernel, _ = to.shapes[layer.weights[0]]
    stride = layer.attributes["stride"]
    shape = (samples, channels, *((length - 1) * stride + kernel for length in space))
    to("ConvTranspose", [*layer.inputs, *layer.weights], layer.name, shape, strides=(stride, stride))


def _repeated(to: _Forms, layer: Layer) -> None:
    shape = (*to.shapes[layer.inputs[0]][:2], *layer.attributes["size"])
    to("Resize", layer.inputs, layer.name, shape, mode="nearest")


def _batch_norm(to: _Forms, layer: Layer) -> None:
    held = [*layer.inputs, *layer.weights, f"{layer.name}.running_mean", f"{layer.name}.running_var"]
    shape = to.shapes[layer.inputs[0]]
    to("BatchNormalization", held, layer.name, shape, epsilon=layer.attributes["epsilon"])


def _layer_norm(to: _Forms, layer: Layer) -> None:
    words = {"epsilon": layer.attributes["epsilon"], "num_groups": 1}
    to("GroupNormalization", [*layer.inputs, *layer.weights], layer.name, to.shapes[layer.inputs[0]], **words)


def _flatten(to: _Forms, layer: Layer) -> None:
    samples, *rest = to.shapes[layer.inputs[0]]
    to("Flatten", layer.inputs, layer.name, (samples, int(np.prod(rest))), axis=layer.attributes["start"])


def _mean(to: _Forms, layer: Layer) -> None:
    axis, shape = layer.attributes["axis"], to.shapes[layer.inputs[0]]
    axes = axis if isinstance(axis, tuple) else (axis,)
    rest = [length for place, length in enumerate(shape) if place not in axes]
    to("ReduceMean", layer.inputs, layer.name, rest, axes=axes, keepdims=0)


def _joined(to: _Forms, layer: Layer) -> None:
    axis, shapes = layer.attributes["axis"], [to.shapes[name] for name in layer.inputs]
    shape = [*shapes[0]]
    shape[axis] = sum(each[axis] for each in shapes)
    to("Concat", layer.inputs, layer.name, shape, axis=axis)


def _embedding(to: _Forms, layer: Layer) -> None:
    (tokens,), (table,) = layer.inputs, layer.weights
    to("Gather", [table, tokens], layer.name, (*to.shapes[tokens], to.shapes[table][1]), axis=0)


def _product(to: _Forms, layer: Layer) -> None:
    one, other = (*layer.inputs, *layer.weights)
    if layer.attributes.get("transpose_b"):
        rank = len(to.shapes[other])
        order = (*range(rank - 2), rank - 1, rank - 2)
        shape = [to.shapes[other][axis] for axis in order]
        other = to("Transpose", [other], f"{layer.name}/as_factor", shape, perm=order)
    to("MatMul", [one, other], layer.name, (*to.shapes[one][:-1], to.shapes[other][-1]))


def _reshape(to: _Forms, layer: Layer) -> None:
    whole = int(np.prod(to.shapes[layer.inputs[0]]))
    shape = layer.attributes["shape"]
    free = whole // int(np.prod([length for length in shape if length != -1]))
    to("Reshape", layer.inputs, layer.name, [free if length == -1 else length for length in shape])


def _transpose(to: _Forms, layer: Layer) -> None:
    order = tuple(layer.attributes["axes"])
    to("Transpose", layer.inputs, layer.name, [to.shapes[layer.inputs[0]][axis] for axis in order], perm=order)


def _lstm(to: _Forms, layer: Layer) -> None:
    """ONNX's op, which wants steps first, gates in its own order and two biases, and the state of the last step."""
    (x,), (kernel, recurrent, bias) = layer.inputs, layer.weights
    samples, steps, _ = to.shapes[x]
    units = to.shapes[recurrent][1]
    at = layer.name
    other = f"{at}/other_bias"
    to.shapes[other] = to.shapes[bias]
    ordered = []
    for name in (kernel, recurrent, bias, other):
        whole, *rest = to.shapes[name]
        parts = tuple(f"{name}/gate{place}" for place in range(len(GATES)))
        to.shapes.update(dict.fromkeys(parts, (units, *rest)))
        to.ops.append(Op("Split", name, (name,), parts, {"axis": 0, "split": (units,) * len(GATES)}))
        ordered.append(to("Concat", [parts[gate] for gate in GATES], f"{name}/gates", (whole, *rest), axis=0))
    ordered[2:] = [to("Concat", ordered[2:], f"{at}/biases", (2 * len(GATES) * units,), axis=0)]
    stacked = [to("Unsqueeze", [name], f"{name}/one", (1, *to.shapes[name]), axes=(0,)) for name in ordered]
    turned = to("Transpose", [x], f"{at}/steps_first", (steps, samples, to.shapes[x][2]), perm=(1, 0, 2))
    starts, ends = ([f"{at}/{word}{state}" for state in ("hidden", "cell")] for word in ("first_", "last_"))
    to.shapes.update(dict.fromkeys((*starts, *ends), (1, samples, units)))
    to.shapes[f"{at}/states"] = (steps, 1, samples, units)
    to.ops.append(Op("LSTM", at, (turned, *stacked, "", *starts), (f"{at}/states", *ends), {"hidden_size": units}))
    flat = to("Squeeze", [f"{at}/states"], f"{at}/flat", (steps, samples, units), axes=(1,))
    back = to("Transpose", [flat], f"{at}/samples_first", (samples, steps, units), perm=(1, 0, 2))
    where = {"starts": (steps - 1,), "ends": (steps,), "axes": (1,)}
    last = to("Slice", [back], f"{at}/last", (samples, 1, units), **where)
    to("Reshape", [last], at, (samples, units))


FORMS: Mapping[str, Callable[[_Forms, Layer], None]] = {
    "linear": _linear,
    "tanh": _same("Tanh"),
    "relu": _same("Relu"),
    "gelu_tanh": _same("Gelu"),
    "add": _same("Add"),
    "dropout": _same("Identity"),
    "flatten": _flatten,
    "conv": _window("Conv"),
    "max_pool": _window("MaxPool"),
    "avg_pool": _window("AveragePool"),
    "conv_transpose": _upwards,
    "interpolate_nearest": _repeated,
    "concat": _joined,
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "mean": _mean,
    "embedding": _embedding,
    "matmul": _product,
    "reshape": _reshape,
    "transpose": _transpose,
    "scale": _same("Scale", "scale"),
    "softmax": _same("Softmax", "axis"),
    "lstm": _lstm,
}
"""The ops of ONNX that each op of the nets is."""


def graph_of(net: Net, samples: int) -> Graph:
    """The inference of a net for so many samples."""
    held = {each.name: each.shape for each in (*net.weights, *net.statistics)}
    to = _Forms({INPUT: (samples, *net.input_shape), **held})
    for layer in net.layers:
        for part in (layer,) if layer.op in FORMS else written_out(layer):
            FORMS[part.op](to, part)
    made = {name for op in to.ops for name in op.outputs}
    weights = [name for name in to.shapes if name not in made and name != INPUT]
    tokens = {INPUT: "INT32"} if net.tokens else {}
    tensors = [Tensor(name, tokens.get(name, "FLOAT"), shape) for name, shape in to.shapes.items()]
    return Graph(net.name, to.ops, [INPUT], [net.layers[-1].name], tensors, weights)
