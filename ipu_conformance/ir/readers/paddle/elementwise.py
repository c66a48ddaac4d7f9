"""Rows for the ops of Paddle's that work element by element, and for reductions."""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping, Optional, Tuple

from ipu_conformance.ir.readers.op_writer import FLOATS
from ipu_conformance.ir.readers.paddle.ops import ROWS, Call, Rule, Writer, row
from ipu_conformance.ir.shapes import MismatchError, broadcast
from ipu_conformance.ir.tensor import UNDEFINED, IRError, Shape

SAME: Mapping[str, str] = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh", "atan": "Atan",
    "atanh": "Atanh", "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh", "erf": "Erf", "exp": "Exp", "floor": "Floor",
    "isinf_v2": "IsInf", "isnan_v2": "IsNaN", "log": "Log", "logical_not": "Not", "reciprocal": "Reciprocal",
    "relu": "Relu", "round": "Round", "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin", "sinh": "Sinh",
    "softsign": "Softsign", "sqrt": "Sqrt", "tan": "Tan", "tanh": "Tanh", "gelu": "Gelu", "detach": "Detach",
    "checkpointoutput": "CheckpointOutput", "assign": "Identity", "share_data": "Identity", "bitwise_not": "BitwiseNot",
}  # fmt: skip
"""Ops that become one op without attributes."""

BINARY: Mapping[str, Tuple[str, ...]] = {
    "elementwise_add": ("Add",), "elementwise_sub": ("Sub",), "elementwise_mul": ("Mul",),
    "elementwise_div": ("Div",), "elementwise_pow": ("Pow",), "elementwise_floordiv": ("Div", "Floor"),
    "equal": ("Equal",), "not_equal": ("Equal", "Not"), "greater_than": ("Greater",), "less_than": ("Less",),
    "greater_equal": ("Less", "Not"), "less_equal": ("Greater", "Not"), "logical_and": ("And",),
    "logical_or": ("Or",), "logical_xor": ("Xor",), "bitwise_and": ("BitwiseAnd",), "bitwise_or": ("BitwiseOr",),
    "bitwise_xor": ("BitwiseXor",),
}  # fmt: skip
"""Ops of two tensors, each with the op that it becomes and the one that follows."""

TRUTHS = frozenset(("Equal", "Greater", "Less"))
"""Ops that make truth values of numbers."""

REDUCTIONS: Mapping[str, str] = {
    "reduce_mean": "ReduceMean", "reduce_sum": "ReduceSum", "reduce_max": "ReduceMax", "reduce_min": "ReduceMin",
    "reduce_prod": "ReduceProd", "logsumexp": "ReduceLogSumExp", "frobenius_norm": "ReduceL2",
}  # fmt: skip


def _same(type: str) -> Rule:
    return lambda call, to: _only(to.add(type, (call.read("X"),), call.output()))


def _only(name: str) -> None:
    """A row gives nothing back."""


def _binary(types: Tuple[str, ...]) -> Rule:
    def rule(call: Call, to: Writer) -> None:
        one, other = aligned(call, to)
        if len(types) == 1:
            to.add(types[0], (one, other), call.output())
            return
        dtype = "BOOL" if types[0] in TRUTHS else to.dtype(one)
        if types[1] == "Floor" and dtype not in FLOATS:
            to.add(types[0], (one, other), call.output())  # whole numbers are divided without a rest anyway
            return
        between = to.add(types[0], (one, other), dtype=dtype, shape=together(to, one, other))
        to.add(types[1], (between,), call.output())

    return rule


def together(to: Writer, one: str, other: str) -> Shape:
    """The shape that two tensors have together."""
    try:
        return broadcast(to.shape(one), to.shape(other)) or ()
    except MismatchError as mismatch:
        raise IRError(f"{one!r} and {other!r}: {mismatch}") from None


def aligned(call: Call, to: Writer) -> Tuple[str, str]:
    """The two inputs as NumPy broadcasts them: Paddle's axis is where the dimensions of the second begin."""
    one, other = call.read("X"), call.read("Y")
    axis = int(call.get("axis", -1))
    ranks = len(to.shape(one)), len(to.shape(other))
    behind = ranks[0] - axis - ranks[1]
    if axis < 0 or behind <= 0 or ranks[1] == 0:
        return one, other
    axes = tuple(range(ranks[1], ranks[1] + behind))
    shape = (*to.shape(other), *(1 for _ in axes))
    return one, to.add("Unsqueeze", (other,), None, {"axes": axes}, shape=shape)


ROWS.update({name: _same(type) for name, type in SAME.items()})
ROWS.update({name: _binary(types) for name, types in BINARY.items()})


@row("elementwise_max", "elementwise_min")
def _extremum(call: Call, to: Writer) -> None:
    one, other = aligned(call, to)
    larger = call.type == "elementwise_max"
    if to.dtype(one) in FLOATS:
        to.add("Max" if larger else "Min", (one, other), call.output())
        return
    # ONNX compares whole numbers, but has no maximum of them before opset 12.
    chosen = to.add(
        "Greater" if larger else "Less", (one, other), None, None, dtype="BOOL", shape=together(to, one, other)
    )
    to.add("Where", (chosen, one, other), call.output())


@row("elementwise_mod")
def _modulo(call: Call, to: Writer) -> None:
    one, other = aligned(call, to)
    to.add("Mod", (one, other), call.output(), {"fmod": int(to.dtype(one) in FLOATS)})


@row("sum")
def _sum(call: Call, to: Writer) -> None:
    names = call.inputs.get("X", ())
    if len(names) == 1:
        to.add("Identity", names, call.output())
    elif to.dtype(names[0]) in FLOATS:
        to.add("Sum", names, call.output())
    else:
        so_far = names[0]
        for place, name in enumerate(names[1:], 2):
            so_far = to.add("Add", (so_far, name), call.output() if place == len(names) else None)


@row("scale")
def _scale(call: Call, to: Writer) -> None:
    source, scale, bias = call.read("X"), float(call.get("scale", 1.0)), float(call.get("bias", 0.0))
    factor = call.optional("ScaleTensor") or to.number(scale, source)
    if bias == 0:
        to.add("Mul", (source, factor), call.output())
        return
    added = to.number(bias, source)
    first, second = (("Mul", factor), ("Add", added)) if call.get("bias_after_scale", True) else (
        ("Add", added), ("Mul", factor))  # fmt: skip
    between = to.add(first[0], (source, first[1]))
    to.add(second[0], (between, second[1]), call.output())


@row("pow")
def _power(call: Call, to: Writer) -> None:
    source = call.read("X")
    to.add(
        "Pow", (source, call.optional("FactorTensor") or to.number(float(call.get("factor", 1)), source)), call.output()
    )


@row("square")
def _square(call: Call, to: Writer) -> None:
    to.add("Mul", (call.read("X"), call.read("X")), call.output())


@row("rsqrt")
def _rsqrt(call: Call, to: Writer) -> None:
    to.add("Reciprocal", (to.add("Sqrt", (call.read("X"),)),), call.output())


@row("log2", "log10", "log1p", "expm1")
def _shifted(call: Call, to: Writer) -> None:
    source = call.read("X")
    if call.type == "log1p":
        to.add("Log", (to.add("Add", (source, to.number(1, source))),), call.output())
    elif call.type == "expm1":
        to.add("Sub", (to.add("Exp", (source,)), to.number(1, source)), call.output())
    else:
        base = {"log2": 0.6931471805599453, "log10": 2.302585092994046}[call.type]
        to.add("Div", (to.add("Log", (source,)), to.number(base, source)), call.output())


def _attributed(type: str, **defaults: Tuple[str, float]) -> Rule:
    """One op whose attributes are Paddle's under other names: ONNX name to Paddle's name and default."""

    def rule(call: Call, to: Writer) -> None:
        attributes = {name: float(call.get(paddle_name, default)) for name, (paddle_name, default) in defaults.items()}
        to.add(type, (call.read("X"),), call.output(), attributes)

    return rule


ROWS["leaky_relu"] = _attributed("LeakyRelu", alpha=("alpha", 0.02))
ROWS["elu"] = _attributed("Elu", alpha=("alpha", 1.0))
ROWS["celu"] = _attributed("Celu", alpha=("alpha", 1.0))
ROWS["selu"] = _attributed("Selu", alpha=("alpha", 1.6732632423543772), gamma=("scale", 1.0507009873554805))
ROWS["hard_sigmoid"] = _attributed("HardSigmoid", alpha=("slope", 0.2), beta=("offset", 0.5))
ROWS["thresholded_relu"] = _attributed("ThresholdedRelu", alpha=("threshold", 1.0))
ROWS["hard_shrink"] = _attributed("Shrink", lambd=("threshold", 0.5))
ROWS["softshrink"] = _attributed("Shrink", lambd=("lambda", 0.5), bias=("lambda", 0.5))


def clipped(to: Writer, source: str, low: Optional[float], high: Optional[float], output: str = "") -> str:
    """A tensor between two numbers."""
    bounds = [to.number(bound, source) if bound is not None else "" for bound in (low, high)]
    return to.add("Clip", (source, *bounds), output or None)


@row("clip")
def _clip(call: Call, to: Writer) -> None:
    source = call.read("X")
    if call.optional("Min", "Max"):
        to.add("Clip", (source, call.optional("Min"), call.optional("Max")), call.output())
    else:
        clipped(to, source, float(call.get("min", 0.0)), float(call.get("max", 0.0)), call.output())


@row("relu6")
def _relu6(call: Call, to: Writer) -> None:
    clipped(to, call.read("X"), 0.0, float(call.get("threshold", 6.0)), call.output())


@row("brelu")
def _bounded(call: Call, to: Writer) -> None:
    clipped(to, call.read("X"), float(call.get("t_min", 0.0)), float(call.get("t_max", 24.0)), call.output())


@row("hard_swish")
def _hard_swish(call: Call, to: Writer) -> None:
    source = call.read("X")
    moved = to.add("Add", (source, to.number(float(call.get("offset", 3.0)), source)))
    bounded = clipped(to, moved, 0.0, float(call.get("threshold", 6.0)))
    part = to.add("Div", (bounded, to.number(float(call.get("scale", 6.0)), source)))
    to.add("Mul", (source, part), call.output())


@row("swish", "silu")
def _swish(call: Call, to: Writer) -> None:
    # Paddle's kernel leaves the attribute beta aside.
    to.add("Mul", (call.read("X"), to.add("Sigmoid", (call.read("X"),))), call.output())


@row("softplus")
def _softplus(call: Call, to: Writer) -> None:
    source, beta = call.read("X"), float(call.get("beta", 1.0))
    if beta == 1:
        to.add("Softplus", (source,), call.output())
        return
    factor = to.number(beta, source)
    to.add("Div", (to.add("Softplus", (to.add("Mul", (source, factor)),)), factor), call.output())


@row("mish")
def _mish(call: Call, to: Writer) -> None:
    source = call.read("X")
    to.add("Mul", (source, to.add("Tanh", (to.add("Softplus", (source,)),))), call.output())


@row("tanh_shrink")
def _tanh_shrink(call: Call, to: Writer) -> None:
    to.add("Sub", (call.read("X"), to.add("Tanh", (call.read("X"),))), call.output())


@row("logsigmoid")
def _logsigmoid(call: Call, to: Writer) -> None:
    to.add("Log", (to.add("Sigmoid", (call.read("X"),)),), call.output())


@row("stanh")
def _stanh(call: Call, to: Writer) -> None:
    source = call.read("X")
    inner = to.add("Mul", (source, to.number(float(call.get("scale_a", 0.67)), source)))
    to.add("Mul", (to.add("Tanh", (inner,)), to.number(float(call.get("scale_b", 1.7159)), source)), call.output())


@row("prelu")
def _prelu(call: Call, to: Writer) -> None:
    source, alpha = call.read("X"), call.read("Alpha")
    if call.get("mode") == "channel" and len(to.shape(source)) > 2:
        alpha = to.reshape(alpha, (-1, *(1 for _ in to.shape(source)[2:])))
    to.add("PRelu", (source, alpha), call.output())


@row("softmax", "log_softmax")
def _softmax(call: Call, to: Writer) -> None:
    type = "Softmax" if call.type == "softmax" else "LogSoftmax"
    along_last(type, call.read("X"), int(call.get("axis", -1)), call.output(), to)


def along_last(type: str, source: str, axis: int, output: str, to: Writer) -> str:
    """An op that works along the last dimension, applied along another one by turning it there and back."""
    place, rank = to.axis(axis, source), len(to.shape(source))
    if place == rank - 1 or rank == 0:
        return to.add(type, (source,), output or None, {"axis": max(rank - 1, 0)})
    order = list(range(rank))
    order[place], order[-1] = order[-1], order[place]
    turned = to.add(type, (to.transpose(source, order),), None, {"axis": rank - 1})
    return to.transpose(turned, order, output)


def reduced(
    to: Writer, type: str, source: str, call: Call, output: str, names: Tuple[str, str] = ("dim", "keep_dim")
) -> None:
    """A reduction over the dimensions that an op names, or over all, of values in the type of its result."""
    if to.dtype(output) != to.dtype(source) and UNDEFINED not in (to.dtype(source), to.dtype(output)):
        source = to.cast(source, to.dtype(output))  # a sum of int32 or of truths is one of int64
    rank = len(to.shape(source))
    axes = tuple(to.axis(axis, source) for axis in call.ints(names[0], ()))
    if call.get("reduce_all", False) or not axes:
        axes = tuple(range(rank))
    keep = int(bool(call.get(names[1], False)))
    if not axes:
        to.add("Identity", (source,), output)
    elif not keep and len(axes) == rank and to.shape(output) == (1,):
        between = to.add(type, (source,), None, {"axes": axes, "keepdims": 0}, shape=())
        to.reshape(between, (1,), output)  # programs of before Paddle 2.5 have no tensors without dimensions
    else:
        to.add(type, (source,), output, {"axes": axes, "keepdims": keep})


def _reduction(type: str, names: Tuple[str, str] = ("dim", "keep_dim")) -> Callable[[Call, Writer], None]:
    return lambda call, to: reduced(to, type, call.read("X"), call, call.output(), names)


ROWS.update({name: _reduction(type) for name, type in REDUCTIONS.items()})
ROWS["logsumexp"] = _reduction("ReduceLogSumExp", ("axis", "keepdim"))


@row("mean")
def _mean(call: Call, to: Writer) -> None:
    reduced(to, "ReduceMean", call.read("X"), call, call.output(), ("", ""))


@row("squared_l2_norm")
def _squared_norm(call: Call, to: Writer) -> None:
    reduced(to, "ReduceSumSquare", call.read("X"), call, call.output(), ("", ""))


@row("p_norm")
def _norm(call: Call, to: Writer) -> None:
    order = float(call.get("porder", 2.0))
    source = call.read("X")
    axis: Tuple[int, ...] = (to.axis(int(call.get("axis", -1)), source),)
    if call.get("asvector", False):
        axis = tuple(range(len(to.shape(source))))
    attributes = {"axes": axis, "keepdims": int(bool(call.get("keepdim", False)))}
    powers(to, source, order, call.output(), attributes)


def powers(to: Writer, source: str, order: float, output: str, attributes: Mapping[str, Any]) -> None:
    """A norm of any order: the number of values that are not 0, the sum of powers, or the largest or smallest size."""
    if order in (1.0, 2.0):
        to.add("ReduceL1" if order == 1 else "ReduceL2", (source,), output, attributes)
        return
    size = to.add("Abs", (source,))
    if math.isinf(order):
        to.add("ReduceMax" if order > 0 else "ReduceMin", (size,), output, attributes)
    elif order == 0:
        to.add("ReduceSum", (to.add("Sign", (size,)),), output, attributes)
    else:
        raised = to.add("Pow", (size, to.number(order, source)))
        total = to.add("ReduceSum", (raised,), None, attributes, shape=to.shape(output))
        to.add("Pow", (total, to.number(1 / order, source)), output)


@row("dot")
def _dot(call: Call, to: Writer) -> None:
    one = call.read("X")
    product = to.add("Mul", (one, call.read("Y")))
    to.add("ReduceSum", (product,), call.output(), {"axes": (len(to.shape(one)) - 1,), "keepdims": 0})


@row("reduce_all", "reduce_any")
def _truths(call: Call, to: Writer) -> None:
    numbers = to.cast(call.read("X"), "INT32")
    between = to.fresh("Reduced", "INT32", to.shape(call.output()))
    reduced(to, "ReduceMin" if call.type == "reduce_all" else "ReduceMax", numbers, call, between)
    to.cast(between, "BOOL", call.output())


@row("isfinite_v2")
def _finite(call: Call, to: Writer) -> None:
    """Neither infinite nor not a number; whole numbers always are."""
    source = call.read("X")
    if to.dtype(source) not in FLOATS:
        to.add("Equal", (source, source), call.output())
        return
    tests = [to.add(type, (source,), dtype="BOOL") for type in ("IsInf", "IsNaN")]
    to.add("Not", (to.add("Or", tests),), call.output())


@row("isinf", "isnan")
def _contains(call: Call, to: Writer) -> None:
    """Whether any number of a tensor is infinite, or not a number."""
    source, output = call.read("X"), call.output()
    each = to.add("IsInf" if call.type == "isinf" else "IsNaN", (source,), dtype="BOOL")
    axes = tuple(range(len(to.shape(source))))
    most = to.add("ReduceMax", (to.cast(each, "INT32"),), None, {"axes": axes, "keepdims": 0}, shape=())
    to.cast(to.reshape(most, to.sizes(output)), "BOOL", output)


@row("where")
def _where(call: Call, to: Writer) -> None:
    to.add("Where", (call.read("Condition"), call.read("X"), call.read("Y")), call.output())


@row("increment")
def _increment(call: Call, to: Writer) -> None:
    source = call.read("X")
    to.add("Add", (source, to.number(float(call.get("step", 1.0)), source)), call.output())


@row("cumsum")
def _cumsum(call: Call, to: Writer) -> None:
    source = call.read("X")
    axis = int(call.get("axis", -1))
    if call.get("flatten", False):
        source, axis = to.reshape(source, (-1,)), 0
    attributes = {
        "exclusive": int(bool(call.get("exclusive", False))),
        "reverse": int(bool(call.get("reverse", False))),
    }
    to.add("CumSum", (source, to.constant(to.axis(axis, source), "INT32")), call.output(), attributes)
