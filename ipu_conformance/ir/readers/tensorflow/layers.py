"""Rows for the ops of TensorFlow's that layers are made of: products, convolutions, pools, norms and losses."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

from ipu_conformance.ir.readers.op_writer import length_of
from ipu_conformance.ir.readers.tensorflow.messages import DType
from ipu_conformance.ir.readers.tensorflow.ops import Call, Writer, integer, row
from ipu_conformance.ir.tensor import IRError, Literal

_FIRST = ("NCHW", "NCDHW", "NCW")
_LAST = ("NHWC", "NDHWC", "NWC")


@row("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def _matmul(call: Call, to: Writer) -> None:
    turns = (("transpose_a", "adj_x"), ("transpose_b", "adj_y"))
    sides = [_turned(call.read(side), any(call.get(name, False) for name in turns[side]), to) for side in (0, 1)]
    to.add("MatMul", sides, call.output)


def _turned(name: str, turn: bool, to: Writer) -> str:
    if not turn:
        return name
    rank = len(to.shape(to.resolve(name)))
    return to.transpose(to.resolve(name), [*range(rank - 2), rank - 1, rank - 2])


@row("BiasAdd", "BiasAddV1")
def _bias(call: Call, to: Writer) -> None:
    source, bias = call.read(0), to.resolve(call.read(1))
    rank = len(to.shape(source))
    if channels_last(call, source, to) or rank <= 2:
        to.add("Add", (source, bias), call.output)
        return
    axes = tuple(range(1, rank - 1))
    shape = (*to.shape(bias), *(1 for _ in axes))
    to.add("Add", (source, to.add("Unsqueeze", (bias,), None, {"axes": axes}, shape=shape)), call.output)


def channels_last(call: Call, source: str, to: Writer) -> bool:
    """Whether the layout of an op has the channels last; any other than the usual ones is an error."""
    layout = call.get("data_format", "NHWC")
    if layout not in (*_FIRST, *_LAST):
        raise IRError(f"{call.type} {call.name!r} has the layout {layout!r}; use one of {', '.join((*_FIRST, *_LAST))}")
    return layout in _LAST


def to_first(source: str, to: Writer) -> str:
    """A tensor with its channels moved from the end to the place behind the batch."""
    rank = len(to.shape(to.resolve(source)))
    return to.transpose(to.resolve(source), (0, rank - 1, *range(1, rank - 1)))


def to_last(source: str, to: Writer, output: str) -> str:
    """A tensor with its channels moved to the end."""
    rank = len(to.shape(source))
    return to.transpose(source, (0, *range(2, rank), 1), output)


def _around(type: str, call: Call, to: Writer, others: Sequence[str], attributes: Dict[str, Any]) -> None:
    """One op on channels that come first, between Transposes where TensorFlow has them last."""
    source = call.read(0)
    if not channels_last(call, source, to):
        to.add(type, (source, *others), call.output, attributes)
        return
    output = to.tensors[call.output]
    shape = None if output.shape is None else (output.shape[0], output.shape[-1], *output.shape[1:-1])
    inner = to.fresh(type, output.dtype, shape)
    to.add(type, (to_first(source, to), *others), inner, attributes)
    to_last(inner, to, call.output)


def _spatial(call: Call, name: str, source: str, to: Writer) -> Tuple[int, ...]:
    """The numbers of a list over all dimensions that belong to space; the others must be 1."""
    lengths = call.ints(name) or (1,) * len(to.shape(source))
    if len(lengths) != len(to.shape(source)):
        raise IRError(f"attribute {name!r} of {call.type} {call.name!r} has {len(lengths)} numbers")
    last = channels_last(call, source, to)
    rest = (lengths[0], lengths[-1]) if last else lengths[:2]
    if rest != (1, 1) or min(lengths) < 1:
        raise IRError(f"attribute {name!r} of {call.type} {call.name!r} is {lengths}; space alone may differ from 1")
    return lengths[1:-1] if last else lengths[2:]


def _padding(call: Call, source: str, to: Writer) -> Dict[str, Any]:
    kind = call.get("padding", "VALID")
    rank = len(to.shape(source)) - 2
    if kind == "VALID":
        return {"pads": (0,) * (2 * rank)}
    if kind == "SAME":
        return {"auto_pad": "SAME_UPPER"}
    paddings = call.ints("explicit_paddings")
    if kind != "EXPLICIT" or len(paddings) != 2 * (rank + 2):
        raise IRError(f"{call.type} {call.name!r} has the padding {kind!r} with {len(paddings)} numbers")
    pairs = [paddings[place : place + 2] for place in range(0, len(paddings), 2)]
    space = pairs[1:-1] if channels_last(call, source, to) else pairs[2:]
    return {"pads": (*(pair[0] for pair in space), *(pair[1] for pair in space))}


def _window(call: Call, source: str, to: Writer) -> Dict[str, Any]:
    return {
        "strides": _spatial(call, "strides", source, to),
        "dilations": _spatial(call, "dilations", source, to),
        **_padding(call, source, to),
    }


@row("Conv2D", "Conv3D")
def _conv(call: Call, to: Writer) -> None:
    source, weight = call.read(0), to.resolve(call.read(1))
    shape = to.shape(weight)
    rank = len(shape) - 2
    channels = to.shape(source)[-1 if channels_last(call, source, to) else 1]
    inner, attributes = shape[-2], _window(call, source, to)
    if channels is None or not inner:
        raise IRError(f"{call.type} {call.name!r} needs the channels of {source!r}, which are not known")
    if len(shape) < 3 or channels % inner:
        raise IRError(f"{call.type} {call.name!r} has a filter of {inner} channels for {channels}")
    turned = to.transpose(weight, (rank + 1, rank, *range(rank)))
    attributes["kernel_shape"] = tuple(length_of(size, weight) for size in shape[:rank])
    _around("Conv", call, to, (turned,), {**attributes, "group": channels // inner})


@row("DepthwiseConv2dNative")
def _depthwise(call: Call, to: Writer) -> None:
    source, weight = call.read(0), to.resolve(call.read(1))
    height, width, channels, times = (length_of(size, weight) for size in to.shape(weight))
    # A filter for each channel: (height, width, channels, times) has the channels of the result in its last two.
    turned = to.transpose(weight, (2, 3, 0, 1))
    flat = to.reshape(turned, (channels * times, 1, height, width))
    attributes = {**_window(call, source, to), "kernel_shape": (height, width), "group": channels}
    _around("Conv", call, to, (flat,), attributes)


@row("MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D")
def _pool(call: Call, to: Writer) -> None:
    source = call.read(0)
    attributes = {
        "kernel_shape": _spatial(call, "ksize", source, to),
        "strides": _spatial(call, "strides", source, to),
        **_padding(call, source, to),
        "ceil_mode": 0,
    }
    average = call.type.startswith("Avg")
    if average:
        attributes["count_include_pad"] = 0
    _around("AveragePool" if average else "MaxPool", call, to, (), attributes)


@row("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def _batch_norm(call: Call, to: Writer) -> None:
    if call.get("is_training", True):
        raise IRError(f"{call.type} {call.name!r} is one for training, whose statistics ONNX updates by itself")
    others = [call.read(place) for place in (1, 2, 3, 4)]
    _around("BatchNormalization", call, to, others, {"epsilon": float(call.get("epsilon", 1e-4))})


@row("SparseSoftmaxCrossEntropyWithLogits")
def _sparse_loss(call: Call, to: Writer) -> None:
    _require_loss_alone(call)
    logits = call.read(0)
    logs = to.add("LogSoftmax", (logits,), None, {"axis": len(to.shape(logits)) - 1})
    to.add("Nll", (logs, call.read(1)), call.output, {"inputIsLogProbability": 1, "reduction": "NoReduction"})


@row("SoftmaxCrossEntropyWithLogits")
def _dense_loss(call: Call, to: Writer) -> None:
    _require_loss_alone(call)
    logits = call.read(0)
    logs = to.add("LogSoftmax", (logits,), None, {"axis": len(to.shape(logits)) - 1})
    weighted = to.add("Mul", (call.read(1), logs), shape=to.shape(logits))
    total = to.add("ReduceSum", (weighted,), None, {"axes": (1,), "keepdims": 0}, shape=to.shape(logits)[:1])
    to.add("Neg", (total,), call.output)


def _require_loss_alone(call: Call) -> None:
    if any(call.outputs[1:]):
        raise IRError(f"{call.type} {call.name!r} makes its own gradient, which is read")


@row("GatherV2", "Gather", "ResourceGather")
def _gather(call: Call, to: Writer) -> None:
    source = call.read(0)
    axis = to.axis(to.values(call.read(2))[0], source) if call.type == "GatherV2" else 0
    if integer(call, "batch_dims", 0):
        raise IRError(f"{call.type} {call.name!r} has batch_dims, which ONNX's Gather has not")
    to.add("Gather", (source, call.read(1)), call.output, {"axis": axis})


@row("Reshape")
def _reshape(call: Call, to: Writer) -> None:
    if not to.is_known(call.read(1)):
        shape = to.tensors[call.output].shape
        if shape is None or sum(length is None for length in shape) > 1:
            wide = call.read(1) if to.dtype(call.read(1)) == "INT64" else to.cast(call.read(1), "INT64")
            to.add("Reshape", (call.read(0), wide), call.output)
            return
        sizes: Sequence[int] = to.sizes(call.output)
    else:
        sizes = to.values(call.read(1))
    source = to.resolve(call.read(0))
    to.tensors[call.output] = _declared(to, call.output, source, sizes)
    to.reshape(source, sizes, call.output)


def _declared(to: Writer, output: str, source: str, sizes: Sequence[int]) -> Any:
    from dataclasses import replace

    tensor = to.tensors[output]
    if tensor.shape is not None:
        return tensor
    return replace(tensor, dtype=to.dtype(source), shape=tuple(None if size < 0 else size for size in sizes))


@row("Squeeze")
def _squeeze(call: Call, to: Writer) -> None:
    source = call.read()
    shape = to.shape(source)
    axes = [to.axis(axis, source) for axis in call.ints("squeeze_dims")] or [
        place for place, length in enumerate(shape) if length == 1
    ]
    if not axes:
        to.add("Identity", (source,), call.output)
        return
    left = tuple(length for place, length in enumerate(shape) if place not in axes)
    _shaped(call, to, source, left)
    to.add("Squeeze", (source,), call.output, {"axes": tuple(sorted(set(axes)))})


@row("ExpandDims")
def _expand_dims(call: Call, to: Writer) -> None:
    source = to.resolve(call.read(0))
    shape, axis = to.shape(source), to.values(call.read(1))[0]
    if not -len(shape) - 1 <= axis <= len(shape):
        raise IRError(f"ExpandDims {call.name!r} has axis {axis} for {len(shape)} dimensions")
    axis %= len(shape) + 1
    _shaped(call, to, source, (*shape[:axis], 1, *shape[axis:]))
    to.add("Unsqueeze", (source,), call.output, {"axes": (axis,)})


def _shaped(call: Call, to: Writer, source: str, shape: Tuple[Any, ...]) -> None:
    """Say what the result is, where no file does."""
    from dataclasses import replace

    if to.tensors[call.output].shape is None:
        to.tensors[call.output] = replace(to.tensors[call.output], dtype=to.dtype(source), shape=shape)


@row("Transpose")
def _transpose(call: Call, to: Writer) -> None:
    to.transpose(to.resolve(call.read(0)), to.values(call.read(1)), call.output)


@row("ConcatV2")
def _concat(call: Call, to: Writer) -> None:
    axis = to.axis(to.values(call.read(-1))[0], to.resolve(call.read(0)))
    to.add("Concat", call.inputs[:-1], call.output, {"axis": axis})


@row("Pack")
def _pack(call: Call, to: Writer) -> None:
    axis, rank = integer(call, "axis", 0), len(to.shape(to.resolve(call.read())))
    if not -rank - 1 <= axis <= rank:
        raise IRError(f"Pack {call.name!r} has axis {axis} for {rank} dimensions")
    axis %= rank + 1
    parts: List[str] = []
    for place in range(len(call.inputs)):
        source = to.resolve(call.read(place))
        shape = to.shape(source)
        longer = (*shape[:axis], 1, *shape[axis:])
        parts.append(to.add("Unsqueeze", (source,), None, {"axes": (axis,)}, shape=longer))
    to.add("Concat", parts, call.output, {"axis": axis})


@row("Split")
def _split(call: Call, to: Writer) -> None:
    source = to.resolve(call.read(1))
    axis, parts = to.axis(to.values(call.read(0))[0], source), integer(call, "num_split", 1)
    length = length_of(to.shape(source)[axis], source)
    if parts != len(call.outputs) or parts < 1 or length % parts:
        raise IRError(f"Split {call.name!r} makes {parts} parts of {length}, and {len(call.outputs)} are known")
    shape = (*to.shape(source)[:axis], length // parts, *to.shape(source)[axis + 1 :])
    for name in filter(None, call.outputs):
        if to.tensors[name].shape is None:
            to.tensors[name] = type(to.tensors[name])(name, to.dtype(source), shape)
    to.add("Split", (source,), call.outputs, {"axis": axis, "split": (length // parts,) * parts})


@row("Pad", "PadV2")
def _pad(call: Call, to: Writer) -> None:
    source, numbers = to.resolve(call.read(0)), to.values(call.read(1))
    if len(numbers) != 2 * len(to.shape(source)):
        raise IRError(f"{call.type} {call.name!r} has {len(numbers)} paddings for {source!r}")
    pads = to.constant([*numbers[::2], *numbers[1::2]], "INT64")
    filling = (call.read(2),) if call.type == "PadV2" else (to.number(0, source),)
    to.add("Pad", (source, pads, *filling), call.output, {"mode": "constant"})


@row("ArgMax", "ArgMin")
def _arg(call: Call, to: Writer) -> None:
    source = to.resolve(call.read(0))
    axis = to.axis(to.values(call.read(1))[0], source)
    shape = tuple(length for place, length in enumerate(to.shape(source)) if place != axis)
    wanted = str(call.get("output_type", DType("INT64")))
    index = to.add(call.type, (source,), None, {"axis": axis, "keepdims": 0}, dtype="INT64", shape=shape)
    to.add("Identity", (index,), call.output) if wanted == "INT64" else to.cast(index, wanted, call.output)


@row("OneHot")
def _one_hot(call: Call, to: Writer) -> None:
    on, off = (to.constants.get(call.read(place)) for place in (2, 3))
    if not isinstance(on, Literal) or not isinstance(off, Literal):
        raise IRError(f"OneHot {call.name!r} has values that are not constant")
    values = to.fresh("Values", on.dtype, (2,))
    to.add("Constant", (), values, {"value": Literal(on.dtype, (2,), off.data + on.data)})
    to.add("OneHot", (call.read(0), call.read(1), values), call.output, {"axis": integer(call, "axis", -1)})


@row("Shape")
def _shape(call: Call, to: Writer) -> None:
    wide = to.add("Shape", (call.read(),), None, dtype="INT64", shape=(len(to.shape(call.read())),))
    wanted = str(call.get("out_type", DType("INT32")))
    to.add("Identity", (wide,), call.output) if wanted == "INT64" else to.cast(wide, wanted, call.output)


@row("Tile")
def _tile(call: Call, to: Writer) -> None:
    to.add("Tile", (call.read(0), to.constant(list(to.values(call.read(1))), "INT64")), call.output)


@row("BroadcastTo")
def _broadcast(call: Call, to: Writer) -> None:
    to.add("Expand", (call.read(0), to.constant(list(to.values(call.read(1))), "INT64")), call.output)
