"""From ATen to PopART: a row for each operation says which op types it becomes and with which attributes.

An operation without a row becomes one op of the type ``namespace::name``, as in ``aten::cdist``; a gradient of it ends
in ``Grad`` like any other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch

TYPES: Mapping[torch.dtype, str] = {
    torch.float32: "FLOAT",
    torch.float64: "FLOAT",
    torch.bfloat16: "FLOAT",
    torch.float16: "FLOAT16",
    torch.int64: "INT32",
    torch.int32: "INT32",
    torch.int16: "INT16",
    torch.int8: "INT8",
    torch.uint8: "UINT8",
    torch.bool: "BOOL",
    torch.complex64: "COMPLEX64",
    torch.complex128: "COMPLEX64",
}
"""The types of the device: 64 bits are narrowed and bfloat16 is widened."""

Values = Mapping[str, Any]
Attributes = Callable[[Values, Sequence[int]], Dict[str, Any]]
"""From the operation's arguments by name and the shape of its first input to the attributes of the op."""


def _none(values: Values, shape: Sequence[int]) -> Dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Row:
    """The ops of an operation, one after the other; the first reads its tensors, each later one the result before."""

    types: Tuple[str, ...]
    attributes: Attributes = _none
    inputs: Optional[Tuple[str, ...]] = None
    """The arguments that are read, by name; all tensors if it is None."""
    kind: str = "plain"
    """How it is lowered: plain, or by a function of its own."""


def _each(value: Union[int, Sequence[int]], rank: int) -> Tuple[int, ...]:
    """A number for each dimension; one number, or a list of one, stands for all."""
    numbers = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    return tuple(int(number) for number in (numbers * rank if len(numbers) == 1 else numbers))


def _conv(values: Values, shape: Sequence[int]) -> Dict[str, Any]:
    rank = len(shape) - 2
    padding = values.get("padding", 0)
    attributes: Dict[str, Any] = {
        "strides": _each(values.get("stride", 1), rank),
        "dilations": _each(values.get("dilation", 1), rank),
        "group": int(values.get("groups", 1)),
    }
    if isinstance(padding, str):
        attributes["auto_pad"] = "VALID" if padding == "valid" else "SAME_UPPER"
    else:
        attributes["pads"] = _each(padding, rank) * 2
    return attributes


def _pool(values: Values, shape: Sequence[int]) -> Dict[str, Any]:
    rank = len(shape) - 2
    window = _each(values["kernel_size"], rank)
    return {
        "kernel_shape": window,
        "strides": _each(values.get("stride") or window, rank),
        "dilations": _each(values.get("dilation", 1), rank),
        "pads": _each(values.get("padding", 0), rank) * 2,
        "ceil_mode": int(bool(values.get("ceil_mode", False))),
    }


def _axis(values: Values, shape: Sequence[int]) -> Dict[str, Any]:
    dim = values.get("dim", 0)
    return {"axis": int(dim) % max(len(shape), 1) if isinstance(dim, int) else 0}


def _position(values: Values, shape: Sequence[int]) -> Dict[str, Any]:
    return {**_axis(values, shape), "keepdims": int(bool(values.get("keepdim")))}


def _product(values: Values, shape: Sequence[int]) -> Dict[str, Any]:
    return {"alpha": float(values.get("alpha", 1.0)), "beta": float(values.get("beta", 1.0))}


def _axes(values: Values, shape: Sequence[int]) -> Dict[str, Any]:
    dim = values.get("dim")
    axes = tuple(range(len(shape))) if dim is None or dim == [] else _each(dim, 1)
    return {"axes": tuple(axis % max(len(shape), 1) for axis in axes), "keepdims": int(bool(values.get("keepdim")))}


def _permutation(values: Values, shape: Sequence[int]) -> Dict[str, Any]:
    order = list(range(len(shape)))
    if "dims" in values:
        order = [dim % len(shape) for dim in values["dims"]]
    elif "dim0" in values or "axis0" in values:
        one, other = (values.get(f"dim{i}", values.get(f"axis{i}")) % len(shape) for i in (0, 1))
        order[one], order[other] = order[other], order[one]
    else:  # the operations without arguments: they turn two dimensions, the last two of more
        order[-2:] = order[-2:][::-1]
    return {"perm": tuple(order)}


def _slice(values: Values, shape: Sequence[int]) -> Dict[str, Any]:
    dim = int(values.get("dim", 0)) % len(shape)
    length = shape[dim]
    start = int(values.get("start", values.get("index", 0)) or 0)
    start = max(0, start + length if start < 0 else start)
    end = values.get("end")
    if "index" in values:
        end = start + 1
    elif "length" in values:
        end = start + int(values["length"])
    elif end is None or end > length:
        end = length
    elif end < 0:
        end += length
    attributes: Dict[str, Any] = {"axes": (dim,), "starts": (start,), "ends": (int(end),)}
    if values.get("step", 1) != 1:
        attributes["steps"] = (int(values["step"]),)
    return attributes


def _number(name: str, default: float, *, to: str) -> Attributes:
    return lambda values, shape: {to: float(values.get(name, default))}


def _clip(values: Values, shape: Sequence[int]) -> Dict[str, Any]:
    low, high = values.get("min", values.get("min_val")), values.get("max", values.get("max_val"))
    limits = {"min": low, "max": high}
    return {name: float(value) for name, value in limits.items() if isinstance(value, (int, float))}


def _batch_norm(values: Values, shape: Sequence[int]) -> Dict[str, Any]:
    return {
        "epsilon": float(values["eps"]),
        "momentum": 1 - float(values["momentum"]),
        "training": int(bool(values["training"])),
    }


def _layer_norm(values: Values, shape: Sequence[int]) -> Dict[str, Any]:
    return {"epsilon": float(values["eps"]), "num_groups": 1}


def _group_norm(values: Values, shape: Sequence[int]) -> Dict[str, Any]:
    return {"epsilon": float(values["eps"]), "num_groups": int(values["num_groups"])}


_REDUCTIONS = ("NoReduction", "Mean", "Sum")


def _nll(values: Values, shape: Sequence[int]) -> Dict[str, Any]:
    attributes: Dict[str, Any] = {"reduction": _REDUCTIONS[int(values.get("reduction", 1))], "inputIsLogProbability": 1}
    if values.get("ignore_index", -100) != -100:
        attributes["ignoreIndex"] = int(values["ignore_index"])
    return attributes


def _dropout(values: Values, shape: Sequence[int]) -> Dict[str, Any]:
    return {"ratio": float(values["p"])}


def _linear(values: Values, shape: Sequence[int]) -> Dict[str, Any]:
    corners = bool(values.get("align_corners"))
    return {"mode": "linear", "coordinate_transformation_mode": "align_corners" if corners else "half_pixel"}


def _topk(values: Values, shape: Sequence[int]) -> Dict[str, Any]:
    return {**_axis(values, shape), "k": int(values.get("k", 1))}


def _rows(names: str, *types: str, **settings: Any) -> Dict[str, Row]:
    return dict.fromkeys(names.split(), Row(types, **settings))


SAME: Mapping[str, str] = {
    "abs": "Abs", "neg": "Neg", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "reciprocal": "Reciprocal", "sin": "Sin",
    "cos": "Cos", "tan": "Tan", "tanh": "Tanh", "sigmoid": "Sigmoid", "relu": "Relu", "floor": "Floor", "ceil": "Ceil",
    "round": "Round", "sign": "Sign", "erf": "Erf", "isnan": "IsNaN", "isinf": "IsInf", "logical_not": "Not",
    "bitwise_not": "BitwiseNot", "log1p": "Log1p", "expm1": "Expm1", "asin": "Asin", "acos": "Acos", "atan": "Atan",
    "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh", "gelu": "Gelu", "silu": "Swish", "selu": "Selu",
    "softplus": "Softplus", "hardsigmoid": "HardSigmoid", "prelu": "PRelu",
    "where": "Where", "embedding": "Gather", "index_select": "Gather", "gather": "GatherElements", "scatter": "Scatter",
    "scatter_add": "ScatterReduce", "cumsum": "CumSum", "expand": "Expand", "expand_as": "Expand", "repeat": "Tile",
    "tile": "Tile", "nonzero": "NonZero", "tril": "Tril", "triu": "Triu", "flip": "Reverse", "roll": "Roll",
    "bernoulli": "Bernoulli", "detach": "Detach", "one_hot": "OneHot", "index": "Gather", "atan2": "Atan2",
}  # fmt: skip
"""Operations that become one op without attributes of note."""

BINARY: Mapping[str, Tuple[str, ...]] = {
    "add": ("Add",), "sub": ("Sub",), "mul": ("Mul",), "div": ("Div",), "pow": ("Pow",), "maximum": ("Max",),
    "minimum": ("Min",), "fmod": ("Fmod",), "remainder": ("Mod",), "eq": ("Equal",), "ne": ("Equal", "Not"),
    "gt": ("Greater",), "lt": ("Less",), "ge": ("Less", "Not"), "le": ("Greater", "Not"), "logical_and": ("And",),
    "logical_or": ("Or",), "logical_xor": ("Xor",), "bitwise_and": ("BitwiseAnd",), "bitwise_or": ("BitwiseOr",),
    "__and__": ("And",), "__or__": ("Or",),
}  # fmt: skip
"""Element-wise operations of two values, either of which may be a number."""

ROWS: Mapping[str, Row] = {
    **{name: Row((type,)) for name, type in SAME.items()},
    **{name: Row(types, inputs=("self", "other", "exponent"), kind="binary") for name, types in BINARY.items()},
    **_rows("rsub", "Sub", inputs=("other", "self"), kind="binary"),
    **_rows("rsqrt", "Sqrt", "Reciprocal"),
    **_rows("square", "Square"),
    **_rows("leaky_relu", "LeakyRelu", attributes=_number("negative_slope", 0.01, to="alpha")),
    **_rows("elu", "Elu", attributes=_number("alpha", 1.0, to="alpha")),
    **_rows("clamp clip hardtanh clamp_min clamp_max", "Clip", attributes=_clip, inputs=("self",)),
    **_rows("relu6", "Clip", attributes=lambda values, shape: {"min": 0.0, "max": 6.0}),
    **_rows("softmax _softmax", "Softmax", attributes=_axis, kind="softmax"),
    **_rows("log_softmax _log_softmax", "LogSoftmax", attributes=_axis, kind="softmax"),
    **_rows("conv1d conv2d conv3d", "Conv", attributes=_conv, inputs=("input", "weight", "bias"), kind="window"),
    **_rows("conv_transpose1d conv_transpose2d conv_transpose3d", "ConvTranspose", attributes=_conv,
            inputs=("input", "weight", "bias"), kind="window"),
    **_rows("max_pool1d max_pool2d max_pool3d", "MaxPool", attributes=_pool, kind="window"),
    **_rows("avg_pool1d avg_pool2d avg_pool3d", "AveragePool", attributes=_pool, kind="window"),
    **_rows("broadcast_tensors", "Expand", kind="broadcast"),
    **_rows("adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d", "AveragePool", kind="adaptive_pool"),
    **_rows("linear", "MatMul", kind="linear"),
    **_rows("matmul mm bmm mv dot", "MatMul"),
    **_rows("addmm", "Gemm", inputs=("mat1", "mat2", "self"), attributes=_product),
    **_rows("batch_norm", "BatchNormalization", attributes=_batch_norm,
            inputs=("input", "weight", "bias", "running_mean", "running_var")),
    **_rows("layer_norm", "GroupNormalization", attributes=_layer_norm, inputs=("input", "weight", "bias")),
    **_rows("group_norm", "GroupNormalization", attributes=_group_norm, inputs=("input", "weight", "bias")),
    **_rows("instance_norm", "InstanceNormalization", inputs=("input", "weight", "bias")),
    **_rows("view reshape flatten unflatten unsqueeze squeeze _unsafe_view view_as reshape_as "
            "ravel", "Reshape",
            attributes=lambda values, shape: {}, inputs=("self", "input"), kind="reshape"),
    **_rows("permute transpose swapaxes swapdims t numpy_T mT", "Transpose", attributes=_permutation),
    **_rows("cat", "Concat", attributes=_axis),
    **_rows("stack", "Concat", attributes=_axis, kind="stack"),
    **_rows("split split_with_sizes chunk tensor_split", "Split", attributes=_axis),
    **_rows("unbind", "Split", attributes=_axis),
    **_rows("slice narrow", "Slice", attributes=_slice),
    **_rows("select", "Slice", attributes=_slice, kind="select"),
    **_rows("pad constant_pad_nd", "Pad"),
    **_rows("mean", "ReduceMean", attributes=_axes),
    **_rows("sum", "ReduceSum", attributes=_axes),
    **_rows("amax", "ReduceMax", attributes=_axes),
    **_rows("amin", "ReduceMin", attributes=_axes),
    **_rows("prod", "ReduceProd", attributes=_axes),
    **_rows("logsumexp", "ReduceLogSumExp", attributes=_axes),
    **_rows("max", "ReduceMax", attributes=_axes, kind="extremum"),
    **_rows("min", "ReduceMin", attributes=_axes, kind="extremum"),
    **_rows("topk sort", "TopK", attributes=_topk),
    **_rows("argmax", "ArgMax", attributes=_position),
    **_rows("argmin", "ArgMin", attributes=_position),
    **_rows("to _to_copy type_as half float", "Cast", inputs=("self",), kind="cast"),
    **_rows("clone contiguous alias lift_fresh lift_fresh_copy", "Identity"),
    **_rows("zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full", "Constant", kind="filled"),
    **_rows("arange scalar_tensor eye linspace empty empty_like new_empty", "Constant", inputs=()),
    **_rows("rand rand_like uniform random", "RandomUniform", inputs=()),
    **_rows("randn randn_like normal", "RandomNormal", inputs=()),
    **_rows("dropout feature_dropout", "Dropout", attributes=_dropout, kind="dropout"),
    **_rows("masked_fill", "Where", inputs=("mask", "value", "self"), kind="masked"),
    **_rows("copy", "Identity", inputs=("src",)),
    **_rows("cross_entropy_loss", "Nll", attributes=_nll, inputs=("self", "target", "weight"), kind="cross_entropy"),
    **_rows("nll_loss nll_loss_nd nll_loss2d", "Nll", attributes=_nll, inputs=("self", "target", "weight")),
    **_rows("mse_loss", "Sub", "Square", kind="distance"),
    **_rows("l1_loss", "Sub", "Abs", kind="distance"),
    **_rows("upsample_nearest2d upsample_nearest1d", "Resize",
            attributes=lambda values, shape: {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}),
    **_rows("upsample_bilinear2d", "Resize", attributes=_linear),
    **_rows("lstm", "LSTM", kind="lstm"),
    **_rows("ctc_loss", "Ctc", inputs=("log_probs", "targets", "input_lengths", "target_lengths")),
}  # fmt: skip
"""The table, by the name of the operation without namespace and without the underscore of in-place forms."""

MARKS: Mapping[str, str] = {
    "identity_loss": "IdentityLoss",
    "nop": "Nop",
    "recomputationCheckpoint": "Identity",
    "set_available_memory": "Identity",
    "set_overlap_for_input": "Identity",
    "set_overlap_for_output": "Identity",
}
"""Operations of PopTorch that change no value."""


def adaptive(shape: Sequence[int], result: Sequence[int]) -> Tuple[str, Dict[str, Any]]:
    """The pool that gives this result: over everything, or with equal windows; None of both is generic."""
    rank = len(result) - 2 if len(result) > 2 else len(result) - 1
    lengths: List[Tuple[int, int]] = list(zip(shape[-rank:], result[-rank:]))
    if all(pooled == 1 for _, pooled in lengths):
        return "GlobalAveragePool", {}
    if all(length % pooled == 0 for length, pooled in lengths):
        window = tuple(length // pooled for length, pooled in lengths)
        return "AveragePool", {"kernel_shape": window, "strides": window}
    return "aten::adaptive_avg_pool", {"elements": math.prod(result[-rank:])}
