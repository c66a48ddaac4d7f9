"""The forward ops of ONNX and PopART, in the words of the oracle's table."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import numpy as np

from ipu_conformance.interpreter.calls import Array, Call, ExecutionError, Function, Table, oracle, wide


def unary(name: str) -> Function:
    """The oracle's op of one value."""
    return lambda call: oracle(name, call.x)


def binary(name: str) -> Function:
    """The oracle's op of two values, broadcast to each other."""
    return lambda call: oracle(name, call[0], call[1])


def folded(name: str) -> Function:
    """The oracle's op of two values, applied to any number of them in turn."""

    def function(call: Call) -> Array:
        total, *others = call.given
        for value in others:
            total = oracle(name, total, value)
        return total

    return function


def geometry(call: Call, *, pool: bool = False) -> Dict[str, Any]:
    """Stride, padding and dilation of a window, and a pool's kernel."""
    rank = call.x.ndim - 2
    pads = call.attribute("pads", default=(0,) * 2 * rank)
    automatic = call.attribute("auto_pad", default="NOTSET")
    padding: Any = tuple(zip(pads[:rank], pads[rank:]))
    if automatic == "SAME_UPPER":
        padding = "SAME"
    elif automatic not in ("NOTSET", "VALID", ""):
        raise ExecutionError(f"{call.place} pads {automatic}, which is not known: use pads, VALID or SAME_UPPER.")
    words = {
        "stride": tuple(call.attribute("strides", default=(1,) * rank)),
        "padding": padding,
        "dilation": tuple(call.attribute("dilations", default=(1,) * rank)),
    }
    if pool:
        words["kernel"] = tuple(call.attribute("kernel_shape"))
        words["ceil_mode"] = bool(call.attribute("ceil_mode", default=0))
    return words


def convolution(call: Call) -> Array:
    """A convolution, with a bias if it has one."""
    return oracle("conv", *call.given, groups=call.attribute("group", default=1), **geometry(call))


def _transposed(call: Call) -> Array:
    return oracle("conv_transpose", *call.given, groups=call.attribute("group", default=1), **geometry(call))


def averaging(call: Call) -> Dict[str, Any]:
    """The words of an average pool."""
    words = geometry(call, pool=True)
    words["count_include_pad"] = bool(call.attribute("count_include_pad", default=0))
    return words


def _matmul(call: Call) -> Array:
    return np.matmul(call[0], call[1])


def _gemm(call: Call) -> Array:
    a = call[0].T if call.attribute("transA", default=0) else call[0]
    b = call[1].T if call.attribute("transB", default=0) else call[1]
    product = call.attribute("alpha", default=1.0) * np.matmul(a, b)
    bias = call.get(2)
    return product if bias is None else product + call.attribute("beta", default=1.0) * bias


def axes_of(call: Call, place: int = 1) -> Tuple[int, ...]:
    """The axes of an op, an attribute or an input; none means all."""
    given = call.attribute("axes", default=())
    held = call.get(place)
    axes = tuple(int(axis) for axis in (np.ravel(held) if held is not None and not given else given))
    return axes or tuple(range(call.x.ndim))


def reduction(name: str) -> Function:
    """The oracle's reduction over axes; dimensions are kept unless an attribute says otherwise."""
    return lambda call: oracle(name, call.x, axis=axes_of(call), keepdims=bool(call.attribute("keepdims", default=1)))


def _reshape(call: Call) -> Array:
    held = call.get(1)
    if held is None and "shape" not in call.op.attributes:
        return np.reshape(call.x, call.shape())
    shape = [int(length) for length in (np.ravel(held) if held is not None else call.attribute("shape"))]
    return np.reshape(call.x, [call.x.shape[place] if length == 0 else length for place, length in enumerate(shape)])


def _flatten(call: Call) -> Array:
    axis = int(call.attribute("axis", default=1))
    return np.reshape(call.x, (int(np.prod(call.x.shape[:axis], dtype=np.int64)), -1))


def _squeeze(call: Call) -> Array:
    listed = call.get(1) is not None or "axes" in call.op.attributes
    return np.squeeze(call.x, axis=axes_of(call) if listed else None)


def _unsqueeze(call: Call) -> Array:
    axes = axes_of(call)
    rank = call.x.ndim + len(axes)
    value = call.x
    for axis in sorted(axis % rank for axis in axes):
        value = np.expand_dims(value, axis)
    return value


def permutation(call: Call, rank: int) -> Tuple[int, ...]:
    """The order of a Transpose; without one it is reversed."""
    return tuple(call.attribute("perm", default=tuple(range(rank))[::-1]))


def _softmax(name: str) -> Function:
    # Before opset 13 an axis flattens what follows it; PopART's ops have one axis, the last in every dump here.
    def function(call: Call) -> Array:
        axis = int(call.attribute("axis", default=call.x.ndim - 1 if call.graph.opset >= 13 else 1)) % call.x.ndim
        if axis == call.x.ndim - 1 or call.graph.opset >= 13:
            return oracle(name, call.x, axis=axis)
        flat = np.reshape(call.x, (int(np.prod(call.x.shape[:axis], dtype=np.int64)), -1))
        return np.reshape(oracle(name, flat, axis=-1), call.x.shape)

    return function


def nll(call: Call) -> Dict[str, Any]:
    """The words of a negative log likelihood, and whether it is given probabilities."""
    reductions = {"nosum": "none", "noreduction": "none", "none": "none", "mean": "mean", "sum": "sum"}
    word = str(call.attribute("reduction", default="Mean")).lower()
    words: Dict[str, Any] = {"reduction": reductions.get(word, word)}
    ignored = call.attribute("ignoreIndex", "ignore_index", default="")
    return words if ignored == "" else {**words, "ignore_index": int(ignored)}


def of_probabilities(call: Call) -> bool:
    """Is Nll given probabilities? PopART's takes them unless an attribute says that it gets their logarithms."""
    return not int(call.attribute("inputIsLogProbability", default=0))


def _classes(call: Call) -> Tuple[Array, Array]:
    """Rows of classes and the labels of PopART's Nll, whose classes are on the last axis."""
    return np.moveaxis(call[0], -1, 1) if call[0].ndim > 2 else call[0], call[1].astype(np.int64)


def nll_of(call: Call) -> Array:
    """PopART's loss: minus the logarithm of the probability of each label."""
    values, labels = _classes(call)
    logs = np.log(values) if of_probabilities(call) else values
    return oracle("nll_loss", logs, labels, **nll(call))


def _nll_onnx(call: Call) -> Array:
    return oracle("nll_loss", call[0], call[1].astype(np.int64), *call.given[2:], **nll(call))


def _cross_entropy(call: Call) -> Any:
    loss = oracle("cross_entropy_loss", call[0], call[1].astype(np.int64), *call.given[2:], **nll(call))
    return (loss, oracle("log_softmax", call[0], axis=1)) if len(call.op.outputs) > 1 else loss


def _batch_norm(call: Call) -> Any:
    epsilon = float(call.attribute("epsilon", default=1e-5))
    training = int(call.attribute("training", "training_mode", default=int(len(call.op.outputs) > 1)))
    if not training:
        return oracle("batch_norm_inference", *call.inputs[:5], epsilon=epsilon)
    x, scale, bias, mean, variance = call.inputs[:5]
    momentum = 1.0 - float(call.attribute("momentum", default=0.9))
    axes = (0, *range(2, call.x.ndim))
    batch_mean, batch_variance = call.x.mean(axis=axes), call.x.var(axis=axes)
    # ONNX, and PopART unless it is told otherwise, take the variance of the batch itself.
    unbiased = bool(int(call.attribute("unbiased_variance", default=0)))
    moved = oracle("batch_norm_statistics", x, mean, variance, momentum=momentum, unbiased=unbiased)
    outputs = (
        oracle("batch_norm", x, scale, bias, epsilon=epsilon),
        *moved,
        batch_mean,
        1.0 / np.sqrt(batch_variance + epsilon),
    )
    return outputs[: max(1, len(call.op.outputs))]


def groups(call: Call) -> Tuple[str, Dict[str, Any]]:
    """A group norm as the oracle has it; of one group over the last axis it is a layer norm."""
    words: Dict[str, Any] = {"epsilon": float(call.attribute("epsilon", default=1e-5))}
    number = int(call.attribute("num_groups"))
    if number == 1 and call[1].size == call.x.shape[-1] and (call.x.ndim != 2 or call[1].ndim == 1):
        return "layer_norm", words
    return "group_norm", {**words, "groups": number}


def _group_norm(call: Call) -> Any:
    name, words = groups(call)
    value = oracle(name, *call.given[:3], **words)
    if len(call.op.outputs) == 1:
        return value
    axes = tuple(range(1, call.x.ndim)) if name == "group_norm" else (call.x.ndim - 1,)
    mean = call.x.mean(axis=axes)
    return (value, mean, 1.0 / np.sqrt(call.x.var(axis=axes) + words["epsilon"]))[: len(call.op.outputs)]


CASTS = {1: "f", 10: "f", 11: "f", 9: "?", **dict.fromkeys((2, 3, 4, 5, 6, 7, 12, 13), "i")}
"""The kinds of ONNX' numbers of types."""


def _cast(call: Call) -> Array:
    target = call.attribute("to", default=call.graph.tensors[call.op.outputs[0]].dtype)
    if isinstance(target, int):
        kind = CASTS.get(target)
    else:
        word = str(target).upper()
        kind = "f" if "FLOAT" in word or word == "DOUBLE" else "?" if word == "BOOL" else "i" if "INT" in word else None
    if kind is None:
        raise ExecutionError(f"{call.place} casts to {target!r}, which is not a type of numbers.")
    # Floating-point numbers keep their exact values: the tolerance of a run knows that a device rounds them.
    return wide(call.x.astype({"f": np.float64, "i": np.int64, "?": np.bool_}[kind]))


def slices(call: Call) -> Tuple[slice, ...]:
    """What a Slice takes along each axis."""
    if call.get(1) is not None:
        starts, ends = np.ravel(call[1]), np.ravel(call[2])
        axes = np.ravel(call[3]) if call.get(3) is not None else np.arange(len(starts))
        steps = np.ravel(call[4]) if call.get(4) is not None else np.ones(len(starts), np.int64)
    else:
        starts, ends = call.attribute("starts"), call.attribute("ends")
        axes = call.attribute("axes", default=tuple(range(len(starts))))
        steps = call.attribute("steps", default=(1,) * len(starts))
    taken = [slice(None)] * call.x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps):
        below = int(step) < 0 and int(end) < -call.x.shape[int(axis)]
        taken[int(axis)] = slice(int(start), None if below else int(end), int(step))
    return tuple(taken)


def _split(call: Call) -> Any:
    axis = int(call.attribute("axis", default=0))
    held = call.get(1)
    sizes = list(np.ravel(held)) if held is not None else list(call.attribute("split", default=()))
    number = len(call.op.outputs)
    parts = np.split(call.x, np.cumsum(sizes)[:-1], axis) if sizes else np.split(call.x, number, axis)
    return tuple(parts)


def _gather(call: Call) -> Array:
    return np.take(call[0], call[1].astype(np.int64), axis=int(call.attribute("axis", default=0)))


def _clip(call: Call) -> Array:
    low = call.get(1) if call.get(1) is not None else call.attribute("min", default=-np.inf)
    high = call.get(2) if call.get(2) is not None else call.attribute("max", default=np.inf)
    return np.clip(call.x, low, high)


def _constant(call: Call) -> Array:
    value = call.attribute("value", "value_float", "value_int", "value_floats", "value_ints")
    return wide(value)


def _expand(call: Call) -> Array:
    shape = tuple(int(n) for n in np.ravel(call[1])) if call.get(1) is not None else call.shape()
    return np.broadcast_to(call.x, np.broadcast_shapes(call.x.shape, shape)).copy()


def _pad(call: Call) -> Array:
    held = call.get(1)
    pads = [int(n) for n in (np.ravel(held) if held is not None else call.attribute("pads"))]
    value = call.get(2)
    number = float(np.ravel(value)[0]) if value is not None else float(call.attribute("value", default=0.0))
    pairs = list(zip(pads[: call.x.ndim], pads[call.x.ndim :]))
    return oracle("pad", call.x, pads=pairs, mode=str(call.attribute("mode", default="constant")), value=number)


def _argument(name: str) -> Function:
    return lambda call: wide(
        oracle(
            name,
            call.x,
            axis=int(call.attribute("axis", default=0)),
            keepdims=bool(call.attribute("keepdims", default=1)),
        )
    )


def nearest(call: Call) -> Dict[str, Any]:
    """The words of a resizing to the nearest value, which is the only one that is known."""
    if str(call.attribute("mode", default="nearest")) != "nearest":
        raise ExecutionError(f"{call.place} interpolates, which is not known: nearest is.")
    return {"coordinates": str(call.attribute("coordinate_transformation_mode", default="asymmetric"))}


def _resize(call: Call) -> Array:
    value: Array = oracle("interpolate_nearest", call.x, size=call.shape()[2:], **nearest(call))
    return value


MASK = 3
"""The place of a Dropout's mask: ONNX's op has two inputs besides its value."""


def dropout(call: Call) -> Array:
    """What a mask keeps, scaled; a dump holds neither masks nor the generator that draws them, so they are given."""
    ratio = float(call.attribute("ratio", default=0.5))
    if not ratio or not int(call.attribute("training", default=1)):
        return call.x
    mask = call.get(MASK)
    if mask is None:
        raise ExecutionError(
            f"{call.place} drops values at random and the dump does not hold its mask: give what the Dropout keeps "
            "under the name of its result with ':kept' behind it."
        )
    return call.x * mask / (1.0 - ratio)


def _gelu(call: Call) -> Array:
    # PopART's Gelu is the one by tanh.
    return oracle("gelu_tanh", call.x)


def _scale(call: Call) -> Array:
    return call.x * float(call.attribute("scale"))


def _mean(call: Call) -> Array:
    return folded("add")(call) / len(call.given)


def _one_hot(call: Call) -> Array:
    depth, (off, on) = int(np.ravel(call[1])[0]), np.ravel(call[2])
    hot = np.where(np.arange(depth) == np.expand_dims(call.x, -1), on, off)
    return wide(np.moveaxis(hot, -1, int(call.attribute("axis", default=-1))))


def _identity(call: Call) -> Array:
    return call.x


def loss_reduction(call: Call) -> str:
    """How a loss is reduced to one number; an IdentityLoss without a word for it is as it is."""
    word = str(call.attribute("reduction", default="NoReduction")).lower()
    if word not in ("noreduction", "mean", "sum"):
        raise ExecutionError(f"{call.place} has reduction {word!r}: there are NoReduction, Mean and Sum.")
    return word


def _identity_loss(call: Call) -> Array:
    word = loss_reduction(call)
    return call.x if word == "noreduction" else call.x.mean() if word == "mean" else call.x.sum()


def _sum_square(call: Call) -> Array:
    return oracle("sum", call.x * call.x, axis=axes_of(call), keepdims=bool(call.attribute("keepdims", default=0)))


SAME = {
    "Abs": "abs", "Neg": "neg", "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Reciprocal": "reciprocal", "Sin": "sin",
    "Cos": "cos", "Tan": "tan", "Tanh": "tanh", "Sigmoid": "sigmoid", "Relu": "relu", "Floor": "floor", "Ceil": "ceil",
    "Round": "round", "Sign": "sign", "Erf": "erf", "Not": "logical_not", "Log1p": "log1p", "Expm1": "expm1",
    "Asin": "asin", "Acos": "acos", "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh", "Selu": "selu", "Swish": "silu",
    "Softsign": "softsign", "Square": "square",
}  # fmt: skip
TWO = {
    "Sub": "sub", "Div": "div", "Pow": "pow", "Equal": "equal", "Greater": "greater", "Less": "less",
    "And": "logical_and", "Or": "logical_or", "Xor": "logical_xor", "GreaterOrEqual": "greater_equal",
    "LessOrEqual": "less_equal", "Atan2": "atan2",
}  # fmt: skip
MANY = {"Add": "add", "Sum": "add", "Mul": "mul", "Max": "maximum", "Min": "minimum"}
REDUCTIONS = {"ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod"}

FORWARD: Table = {
    **{name: unary(word) for name, word in SAME.items()},
    **{name: binary(word) for name, word in TWO.items()},
    **{name: folded(word) for name, word in MANY.items()},
    **{name: reduction(word) for name, word in REDUCTIONS.items()},
    **dict.fromkeys(("Identity", "Nop", "Detach", "IpuCopy"), _identity),
    "IdentityLoss": _identity_loss,
    "ReduceSumSquare": _sum_square,
    "Mean": _mean,
    "Scale": _scale,
    "Softplus": lambda call: oracle("softplus", call.x, 1.0),
    "LeakyRelu": lambda call: oracle("leaky_relu", call.x, float(call.attribute("alpha", default=0.01))),
    "Elu": lambda call: oracle("elu", call.x, float(call.attribute("alpha", default=1.0))),
    "Gelu": _gelu,
    "Clip": _clip,
    "Cast": _cast,
    "Constant": _constant,
    "Shape": lambda call: np.array(call.x.shape, np.int64),
    "Where": lambda call: np.where(call[0].astype(bool), call[1], call[2]),
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Conv": convolution,
    "ConvTranspose": _transposed,
    "MaxPool": lambda call: oracle("max_pool", call.x, **geometry(call, pool=True)),
    "AveragePool": lambda call: oracle("avg_pool", call.x, **averaging(call)),
    "GlobalAveragePool": lambda call: oracle("global_avg_pool", call.x),
    "GlobalMaxPool": lambda call: oracle("global_max_pool", call.x),
    "BatchNormalization": _batch_norm,
    "GroupNormalization": _group_norm,
    "Softmax": _softmax("softmax"),
    "LogSoftmax": _softmax("log_softmax"),
    "Nll": nll_of,
    "NegativeLogLikelihoodLoss": _nll_onnx,
    "SoftmaxCrossEntropyLoss": _cross_entropy,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": lambda call: np.transpose(call.x, permutation(call, call.x.ndim)),
    "Expand": _expand,
    "Tile": lambda call: np.tile(call.x, [int(n) for n in np.ravel(call[1])]),
    "Concat": lambda call: np.concatenate(call.given, axis=int(call.attribute("axis"))),
    "Split": _split,
    "Slice": lambda call: call.x[slices(call)],
    "Pad": _pad,
    "Gather": _gather,
    "OneHot": _one_hot,
    "ArgMax": _argument("argmax"),
    "ArgMin": _argument("argmin"),
    "Resize": _resize,
    "Dropout": dropout,
}
"""Every forward op by its type."""
