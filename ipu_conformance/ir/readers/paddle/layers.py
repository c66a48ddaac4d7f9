"""Rows for the ops of Paddle's that layers are made of: products, convolutions, pools, norms and dropout."""

from __future__ import annotations

import struct
from typing import Any, Dict, Sequence, Tuple

from ipu_conformance.ir.readers.op_writer import length_of
from ipu_conformance.ir.readers.paddle.ops import Call, Writer, row
from ipu_conformance.ir.tensor import IRError, count

_CHANNELS_FIRST = ("NCHW", "NCDHW", "AnyLayout", "NCL")


@row("matmul", "matmul_v2", "bmm")
def _matmul(call: Call, to: Writer) -> None:
    one = _turned(call.read("X"), call.get("trans_x", call.get("transpose_X", False)), to)
    other = _turned(call.read("Y"), call.get("trans_y", call.get("transpose_Y", False)), to)
    alpha = float(call.get("alpha", 1.0))
    if alpha == 1:
        to.add("MatMul", (one, other), call.output())
        return
    product = to.add("MatMul", (one, other), None, None, shape=to.shape(call.output()))
    to.add("Mul", (product, to.number(alpha, product)), call.output())


def _turned(name: str, turn: Any, to: Writer) -> str:
    rank = len(to.shape(name))
    if not turn or rank < 2:
        return name
    return to.transpose(name, [*range(rank - 2), rank - 1, rank - 2])


@row("mul")
def _mul(call: Call, to: Writer) -> None:
    one, other, output = call.read("X"), call.read("Y"), call.output()
    columns = int(call.get("x_num_col_dims", 1)), int(call.get("y_num_col_dims", 1))
    flat = _as_matrix(one, columns[0], to), _as_matrix(other, columns[1], to)
    shape = to.shape(output)
    if len(shape) == 2:
        to.add("MatMul", flat, output)
        return
    between = to.add("MatMul", flat, None, None, shape=(to.shape(flat[0])[0], to.shape(flat[1])[1]))
    to.reshape(between, to.sizes(output), output)


def _as_matrix(name: str, columns: int, to: Writer) -> str:
    shape = to.shape(name)
    if len(shape) == 2 and columns == 1:
        return name
    inner = count(shape[columns:])
    return to.reshape(
        name, (-1 if count(shape[:columns]) is None else count(shape[:columns]) or 0, length_of(inner, name))
    )


@row("mv")
def _mv(call: Call, to: Writer) -> None:
    to.add("MatMul", (call.read("X"), call.read("Vec")), call.output())


@row("addmm")
def _addmm(call: Call, to: Writer) -> None:
    attributes = {"alpha": float(call.get("Alpha", 1.0)), "beta": float(call.get("Beta", 1.0))}
    to.add("Gemm", (call.read("X"), call.read("Y"), call.read("Input")), call.output(), attributes)


@row("conv2d", "depthwise_conv2d", "conv3d", "conv2d_transpose", "depthwise_conv2d_transpose", "conv3d_transpose")
def _conv(call: Call, to: Writer) -> None:
    source, weight = call.read("Input"), call.read("Filter")
    _require_channels_first(call, call.get("data_format", "NCHW"))
    rank = len(to.shape(source)) - 2
    attributes: Dict[str, Any] = {
        "kernel_shape": tuple(length_of(size, weight) for size in to.shape(weight)[2:]),
        "strides": call.ints("strides", (1,) * rank),
        "dilations": call.ints("dilations", (1,) * rank),
        "group": int(call.get("groups", 1)),
        **_padding(call, rank),
    }
    turned = "transpose" in call.type
    if turned and any(call.ints("output_padding")):
        attributes["output_padding"] = call.ints("output_padding")
    bias = call.optional("Bias")
    type = "ConvTranspose" if turned else "Conv"
    to.add(type, (source, weight, *((bias,) if bias else ())), call.output("Output", "Out"), attributes)


def _require_channels_first(call: Call, layout: Any) -> None:
    if layout not in _CHANNELS_FIRST:
        raise IRError(f"{call.type} has the layout {layout!r}; the layouts are {', '.join(_CHANNELS_FIRST)}")


def _padding(call: Call, rank: int) -> Dict[str, Any]:
    algorithm = call.get("padding_algorithm", "EXPLICIT")
    if algorithm in ("SAME", "VALID"):
        return {"auto_pad": "SAME_UPPER" if algorithm == "SAME" else "VALID"}
    paddings = call.ints("paddings", (0,) * rank)
    if len(paddings) == rank:
        return {"pads": paddings * 2}
    if len(paddings) != 2 * rank:
        raise IRError(f"{call.type} has {len(paddings)} paddings for {rank} dimensions; give {rank} or {2 * rank}")
    return {"pads": (*paddings[::2], *paddings[1::2])}


@row("pool2d", "pool3d", "max_pool2d_with_index")
def _pool(call: Call, to: Writer) -> None:
    source, output = call.read("X"), call.output()
    _require_channels_first(call, call.get("data_format", "NCHW"))
    average = call.get("pooling_type", "max") == "avg"
    rank = len(to.shape(source)) - 2
    window, strides = call.ints("ksize"), call.ints("strides", (1,) * rank)
    if call.get("global_pooling", False) or (call.get("adaptive", False) and set(window) == {1}):
        to.add("GlobalAveragePool" if average else "GlobalMaxPool", (source,), output)
        return
    padding = _padding(call, rank)
    if call.get("adaptive", False):
        window = strides = _equal_windows(to.shape(source)[2:], window, call)
        padding = {"pads": (0,) * (2 * rank)}
    attributes = {
        "kernel_shape": window,
        "strides": strides,
        **padding,
        "ceil_mode": int(bool(call.get("ceil_mode", False))),
    }
    if average:
        attributes["count_include_pad"] = int(not call.get("exclusive", True))
    to.add("AveragePool" if average else "MaxPool", (source,), output, attributes)


def _equal_windows(shape: Sequence[Any], wanted: Sequence[int], call: Call) -> Tuple[int, ...]:
    if any(length is None or not size or length % size for length, size in zip(shape, wanted)):
        raise IRError(f"{call.type} is adaptive from {tuple(shape)} to {tuple(wanted)}; windows must be equal")
    return tuple(length // size for length, size in zip(shape, wanted))


@row("batch_norm")
def _batch_norm(call: Call, to: Writer) -> None:
    _require_channels_first(call, call.get("data_layout", "NCHW"))
    inputs = [call.read(slot) for slot in ("X", "Scale", "Bias", "Mean", "Variance")]
    attributes = {"epsilon": float(call.get("epsilon", 1e-5))}
    outputs = [call.output("Y")]
    if not (call.get("is_test", False) or call.get("use_global_stats", False)):
        attributes["momentum"] = float(call.get("momentum", 0.9))
        outputs += [call.output(slot) for slot in ("MeanOut", "VarianceOut", "SavedMean", "SavedVariance")]
    to.add("BatchNormalization", inputs, outputs, attributes)


@row("layer_norm")
def _layer_norm(call: Call, to: Writer) -> None:
    source, output = call.read("X"), call.output("Y")
    begin = int(call.get("begin_norm_axis", 1))
    shape = to.shape(source)
    inner = length_of(count(shape[begin:]), source)
    outer = count(shape[:begin])
    flat = source if len(shape) == 2 and begin == 1 else to.reshape(source, (-1 if outer is None else outer, inner))
    inputs = (flat, *_scale_and_bias(call, to, inner))
    attributes = {"num_groups": 1, "epsilon": float(call.get("epsilon", 1e-5))}
    if flat == source:
        to.add("GroupNormalization", inputs, output, attributes)
    else:
        to.reshape(to.add("GroupNormalization", inputs, None, attributes), to.sizes(output), output)


def _scale_and_bias(call: Call, to: Writer, channels: int) -> Tuple[str, str]:
    source = call.read("X")
    outputs = []
    for slot, value in (("Scale", 1.0), ("Bias", 0.0)):
        outputs.append(call.optional(slot) or to.full(value, to.dtype(source), (channels,)))
    return outputs[0], outputs[1]


@row("group_norm", "instance_norm")
def _group_norm(call: Call, to: Writer) -> None:
    _require_channels_first(call, call.get("data_layout", "NCHW"))
    source = call.read("X")
    inputs = (source, *_scale_and_bias(call, to, length_of(to.shape(source)[1], source)))
    epsilon = {"epsilon": float(call.get("epsilon", 1e-5))}
    if call.type == "group_norm":
        to.add("GroupNormalization", inputs, call.output("Y"), {"num_groups": int(call.get("groups", 1)), **epsilon})
    else:
        to.add("InstanceNormalization", inputs, call.output("Y"), epsilon)


@row("norm")
def _norm(call: Call, to: Writer) -> None:
    source = call.read("X")
    axis = to.axis(int(call.get("axis", -1)), source)
    shape = [1 if place == axis else size for place, size in enumerate(to.shape(source))]
    squares = to.add("ReduceSumSquare", (source,), None, {"axes": (axis,), "keepdims": 1}, shape=shape)
    added = to.add("Add", (squares, to.number(float(call.get("epsilon", 1e-10)), source)))
    to.add("Div", (source, to.add("Sqrt", (added,), call.outputs.get("Norm", ())[:1] or None)), call.output())


@row("data_norm")
def _data_norm(call: Call, to: Writer) -> None:
    """By statistics over all data so far: how many, their sum, and the sum of their squares."""
    if int(call.get("slot_dim", -1)) > 0:
        raise IRError("data_norm skips slots that were never shown; leave slot_dim as it is")
    source, output = call.read("X"), call.output("Y")
    size, total, squares = (call.read(f"Batch{name}") for name in ("Size", "Sum", "SquareSum"))
    mean = to.add("Div", (total, size), call.outputs.get("Means", ())[:1] or None)
    factor = to.add("Sqrt", (to.add("Div", (size, squares)),), call.outputs.get("Scales", ())[:1] or None)
    centred = to.add("Sub", (source, mean))
    if not call.get("enable_scale_and_shift", False):
        to.add("Mul", (centred, factor), output)
        return
    normal = to.add("Mul", (centred, factor))
    to.add("Add", (to.add("Mul", (normal, call.read("scale_w"))), call.read("bias")), output)


@row("affine_channel")
def _affine(call: Call, to: Writer) -> None:
    source = call.read("X")
    ones = tuple(1 for _ in to.shape(source)[2:])
    scale, bias = (to.reshape(call.read(slot), (-1, *ones)) for slot in ("Scale", "Bias"))
    to.add("Add", (to.add("Mul", (source, scale)), bias), call.output())


@row("dropout")
def _dropout(call: Call, to: Writer) -> None:
    source, output = call.read("X"), call.output()
    ratio = float(call.get("dropout_prob", 0.5))
    kept = call.get("dropout_implementation", "downgrade_in_infer") == "downgrade_in_infer"
    testing = bool(call.get("is_test", False))
    if testing or ratio == 0:
        if kept and testing:
            to.add("Mul", (source, to.number(1 - ratio, source)), output)
        else:
            to.add("Identity", (source,), output)
    elif kept:
        to.add("Mul", (to.add("Dropout", (source,), None, {"ratio": ratio}), to.number(1 - ratio, source)), output)
    else:
        to.add("Dropout", (source,), output, {"ratio": ratio})


@row(
    "nearest_interp",
    "nearest_interp_v2",
    "bilinear_interp",
    "bilinear_interp_v2",
    "linear_interp",
    "linear_interp_v2",
    "trilinear_interp",
    "trilinear_interp_v2",
    "bicubic_interp_v2",
)
def _interpolate(call: Call, to: Writer) -> None:
    source, output = call.read("X"), call.output()
    _require_channels_first(call, call.get("data_layout", "NCHW"))
    if any(call.inputs.get(slot) for slot in ("OutSize", "SizeTensor", "Scale")):
        raise IRError(f"{call.type} of {source!r} has a size that is a tensor; give it as numbers")
    kind = call.type.split("_")[0]
    corners = bool(call.get("align_corners", True))
    half = kind != "nearest" and int(call.get("align_mode", 1)) == 0
    attributes = {
        "mode": {"nearest": "nearest", "bicubic": "cubic"}.get(kind, "linear"),
        "coordinate_transformation_mode": "align_corners" if corners else "half_pixel" if half else "asymmetric",
    }
    if kind == "nearest":
        attributes["nearest_mode"] = "round_prefer_ceil" if corners else "floor"
    sizes = to.sizes(output)
    if -1 in sizes:
        raise IRError(f"{call.type} needs the shape of {output!r}, which is not known")
    lengths = [length_of(length, source) for length in to.shape(source)]
    region = to.constant([0.0] * len(sizes) + [1.0] * len(sizes), "FLOAT")
    scales = to.constant([_scale(*pair) for pair in zip(lengths, sizes)], "FLOAT")
    to.add("Resize", (source, region, scales), output, attributes)


def _scale(length: int, wanted: int) -> float:
    """The factor, as a float of 32 bits, by which a length becomes the wanted one when the product is cut off."""
    bits = struct.unpack("<I", struct.pack("<f", wanted / length))[0]
    for candidate in (bits, bits + 1):
        number: float = struct.unpack("<f", struct.pack("<I", candidate))[0]
        if int(number * length) == wanted:
            return number
    raise IRError(f"no factor of 32 bits makes {wanted} of {length}")


@row("print")
def _print(call: Call, to: Writer) -> None:
    to.add("Print", (call.read("In"),), call.output(), {"title": str(call.get("message", "")) or call.read("In")})
