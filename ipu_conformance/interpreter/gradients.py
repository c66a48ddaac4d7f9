"""PopART's gradient ops. Each reads what its row of PopART's gradInputInfo says, and carries its forward op's words."""

from __future__ import annotations

from typing import Callable, Tuple

import numpy as np

from ipu_conformance.interpreter.calls import Array, Call, Function, Table, vjp
from ipu_conformance.interpreter.forward import (
    averaging,
    dropout,
    geometry,
    groups,
    loss_reduction,
    nearest,
    nll,
    of_probabilities,
    permutation,
    slices,
)
from ipu_conformance.oracle.op import unbroadcast

Pull = Callable[[Array, Array], Array]


def _of_result(pull: Pull) -> Function:
    """A gradient that reads dy and the result."""
    return lambda call: pull(call[0], call[1])


def _of_input(name: str) -> Function:
    """A gradient that reads dy and the input."""
    return lambda call: vjp(name, call[0], call[1])[0]


def _argument(name: str, place: int) -> Function:
    """The gradient by one of two factors, which reads dy, both factors (one, if they are the same) and the result."""

    def function(call: Call) -> Array:
        *between, _ = call.given[1:]
        one, other = between if len(between) == 2 else between * 2
        return unbroadcast(vjp(name, call[0], one, other)[place], call.shape())

    return function


def _summed(sign: float) -> Function:
    return lambda call: sign * unbroadcast(call[0], call.shape())


def _extreme(call: Call) -> Array:
    """The gradient by one argument of a maximum or minimum, which reads dy, the argument and the result."""
    chosen = np.broadcast_to(call[1], call[2].shape) == call[2]
    return unbroadcast(np.where(chosen, call[0], 0.0), call.shape())


def _spread(call: Call) -> Array:
    """A gradient over what a reduction has added up: dy, repeated."""
    shape = call.shape()
    axes = tuple(axis % len(shape) for axis in call.attribute("axes", default=tuple(range(len(shape)))))
    kept = [1 if axis in axes else length for axis, length in enumerate(shape)]
    return np.broadcast_to(np.reshape(call[0], kept), shape).copy()


def _mean(call: Call) -> Array:
    spread = _spread(call)
    return spread * (call[0].size / spread.size)


def _matmul_left(call: Call) -> Array:
    """dy times the other factor, turned."""
    return unbroadcast(np.matmul(call[0], np.swapaxes(call[1], -1, -2)), call.shape())


def _matmul_right(call: Call) -> Array:
    product = np.matmul(np.swapaxes(call[1], -1, -2), call[0])
    return unbroadcast(product, call.shape())


def _conv_data(name: str) -> Function:
    """Reads the weight and dy."""

    def function(call: Call) -> Array:
        zeros = np.zeros(call.shape())
        words = geometry(_over(call, zeros))
        return vjp(name, call[1], zeros, call[0], groups=call.attribute("group", default=1), **words)[0]

    return function


def _conv_weights(name: str) -> Function:
    """Reads dy and the data."""

    def function(call: Call) -> Array:
        words = geometry(_over(call, call[1]))
        return vjp(name, call[0], call[1], np.zeros(call.shape()), groups=call.attribute("group", default=1), **words)[
            1
        ]

    return function


def _over(call: Call, value: Array) -> Call:
    """The same op as if its first value were this."""
    return Call(call.op, (value,), call.graph)


def _max_pool(call: Call) -> Array:
    return vjp("max_pool", call[2], call[0], **geometry(call, pool=True))[0]


def _average_pool(call: Call) -> Array:
    return vjp("avg_pool", call[2], call[0], **averaging(call))[0]


def _nll(call: Call) -> Array:
    """Reads the logarithms (or the probabilities), the labels and dy."""
    values, labels, cotangent = call[0], call[1].astype(np.int64), call[2]
    turned = np.moveaxis(values, -1, 1) if values.ndim > 2 else values
    logs = np.log(turned) if of_probabilities(call) else turned
    gradient = vjp("nll_loss", cotangent, logs, labels, **nll(call))[0]
    if of_probabilities(call):
        gradient = gradient / turned
    return np.moveaxis(gradient, 1, -1) if values.ndim > 2 else gradient


def _log_softmax(call: Call) -> Array:
    axis = int(call.attribute("axis", default=call[1].ndim - 1))
    return vjp("log_softmax", call[0], call[1], axis=axis)[0]


def _softmax(call: Call) -> Array:
    axis = int(call.attribute("axis", default=call[1].ndim - 1))
    return call[1] * (call[0] - np.sum(call[0] * call[1], axis=axis, keepdims=True))


def _batch_norm(call: Call) -> Tuple[Array, ...]:
    """Reads x, the scale, the batch's mean and inverse deviation, and dy."""
    x, scale, cotangent = call[0], call[1], call.given[-1]
    bias = np.zeros_like(scale)
    epsilon = float(call.attribute("epsilon", default=1e-5))
    return tuple(vjp("batch_norm", cotangent, x, scale, bias, epsilon=epsilon))[: len(call.op.outputs)]


def _group_norm(call: Call) -> Tuple[Array, ...]:
    x, scale, cotangent = call[0], call[1], call.given[-1]
    name, words = groups(Call(call.op, (x, scale), call.graph))
    return tuple(vjp(name, cotangent, x, scale, np.zeros_like(scale), **words))[: len(call.op.outputs)]


def _transpose(call: Call) -> Array:
    return np.transpose(call[0], np.argsort(permutation(call, call[0].ndim)))


def _bias(call: Call) -> Array:
    return call[0].sum(axis=(0, *range(2, call[0].ndim)))


def _slice(call: Call) -> Array:
    gradient = np.zeros(call.shape())
    gradient[slices(Call(call.op, (gradient,), call.graph))] = call[0]
    return gradient


def _gather(call: Call) -> Array:
    """Reads dy, the table and the places."""
    gradient = np.zeros(call.shape())
    axis = int(call.attribute("axis", default=0))
    places = call[2].astype(np.int64)
    moved = np.moveaxis(gradient, axis, 0)
    np.add.at(moved, places, np.moveaxis(call[0], range(axis, axis + places.ndim), range(places.ndim)))
    return gradient


def _concat(call: Call) -> Array:
    """The part of dy that came from one input; the attributes say where it begins and ends."""
    start, end = (int(call.attribute(word)) for word in ("start", "end"))
    return np.take(call[0], range(start, end), axis=int(call.attribute("axis")))


def _resize(call: Call) -> Array:
    """Reads dy and the input."""
    words = nearest(call)
    return vjp("interpolate_nearest", call[0], call[1], size=call[0].shape[2:], **words)[0]


def _clip(call: Call) -> Array:
    low = float(call.attribute("min", default=-np.inf))
    high = float(call.attribute("max", default=np.inf))
    return vjp("clip", call[0], call[1], low=low, high=high)[0]


def _identity_loss(call: Call) -> Array:
    shape = call.shape()
    share = np.prod(shape, dtype=float) if loss_reduction(call) == "mean" else 1.0
    return np.broadcast_to(call[0] / share, shape).copy()


def _reshaped(call: Call) -> Array:
    return np.reshape(call[0], call.shape())


def _unchanged(call: Call) -> Array:
    return call[0]


_BY_INPUT = {
    "Abs": "abs", "Log": "log", "Sin": "sin", "Cos": "cos", "Erf": "erf", "Gelu": "gelu_tanh", "Square": "square",
    "Reciprocal": "reciprocal", "Softsign": "softsign", "Selu": "selu", "Swish": "silu", "Atan": "atan",
}  # fmt: skip
_FACTORS = {"Mul": "mul", "Div": "div", "Pow": "pow", "Atan2": "atan2"}
_RESHAPED = ("ReshapeGrad", "FlattenGrad", "SqueezeGrad", "UnsqueezeGrad")
_UNCHANGED = ("IdentityGrad", "NopGrad", "CastGrad")

GRADIENTS: Table = {
    **{f"{name}Grad": _of_input(word) for name, word in _BY_INPUT.items()},
    **{f"{name}Arg{place}Grad": _argument(word, place) for name, word in _FACTORS.items() for place in (0, 1)},
    **dict.fromkeys(_RESHAPED, _reshaped),
    **dict.fromkeys(_UNCHANGED, _unchanged),
    "ReluGrad": _of_result(lambda dy, y: dy * (y > 0)),
    "SigmoidGrad": _of_result(lambda dy, y: dy * y * (1 - y)),
    "TanhGrad": _of_result(lambda dy, y: dy * (1 - y * y)),
    "ExpGrad": _of_result(lambda dy, y: dy * y),
    "SqrtGrad": _of_result(lambda dy, y: dy / (2 * y)),
    "SoftmaxGrad": _softmax,
    "LogSoftmaxGrad": _log_softmax,
    "NegGrad": lambda call: -call[0],
    "ScaleGrad": lambda call: call[0] * float(call.attribute("scale")),
    "AddArg0Grad": _summed(1.0),
    "AddArg1Grad": _summed(1.0),
    "SumArgGrad": _summed(1.0),
    "SubArg0Grad": _summed(1.0),
    "SubArg1Grad": _summed(-1.0),
    "ExpandGrad": _summed(1.0),
    "MaxArgGrad": _extreme,
    "MinArgGrad": _extreme,
    "ReduceSumGrad": _spread,
    "ReduceMeanGrad": _mean,
    "MatMulLhsGrad": _matmul_left,
    "MatMulRhsGrad": _matmul_right,
    "ConvDataGrad": _conv_data("conv"),
    "ConvWeightsGrad": _conv_weights("conv"),
    "ConvTransposeDataGrad": _conv_data("conv_transpose"),
    "ConvTransposeWeightsGrad": _conv_weights("conv_transpose"),
    "AddBiasBiasGrad": _bias,
    "MaxPoolGrad": _max_pool,
    "AveragePoolGrad": _average_pool,
    "NllGrad": _nll,
    "IdentityLossGrad": _identity_loss,
    "BatchNormalizationGrad": _batch_norm,
    "GroupNormalizationGrad": _group_norm,
    "TransposeGrad": _transpose,
    "SliceGrad": _slice,
    "GatherGrad": _gather,
    "ClipGrad": _clip,
    "ConcatGrad": _concat,
    "SplitGrad": lambda call: np.concatenate(call.given, axis=int(call.attribute("axis", default=0))),
    "ResizeGrad": _resize,
    "DropoutGrad": dropout,
}
"""Every gradient op by its type."""
