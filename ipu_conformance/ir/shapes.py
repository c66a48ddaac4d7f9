"""Shape inference for the common ops: a table from op types to what their outputs must be."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.ir.tensor import UNDEFINED, Shape, Tensor, shape_text


class MismatchError(Exception):
    """The inputs or attributes of an op do not fit together; the message explains how."""


class Value(NamedTuple):
    """What is known of an output."""

    dtype: str = UNDEFINED
    shape: Optional[Shape] = None


Rule = Callable[[Op, Sequence[Value]], List[Value]]


def infer(op: Op, inputs: Sequence[Value]) -> List[Value]:
    """What the outputs of an op are, as far as its type is in the table and its inputs are known."""
    rule = RULES.get(op.type)
    inferred = rule(op, inputs) if rule and inputs else []
    return [*inferred, *(Value() for _ in op.outputs[len(inferred) :])]


def completed(graph: Graph) -> Graph:
    """The graph with every unknown dtype, rank and dimension filled in that the table can infer."""
    tensors = dict(graph.tensors)
    for op in graph.ops:
        try:
            inferred = infer(op, inputs_of(op, tensors))
        except MismatchError:
            continue
        for name, value in zip(op.outputs, inferred):
            if name:
                tensors[name] = _filled(tensors[name], value)
    return graph if tensors == graph.tensors else replace(graph, tensors=tensors)


def inputs_of(op: Op, tensors: Mapping[str, Tensor]) -> List[Value]:
    """What is known of the inputs of an op; nothing about those that are omitted."""
    return [Value(tensors[name].dtype, tensors[name].shape) if name else Value() for name in op.inputs]


def fits(expected: Optional[Shape], found: Optional[Shape]) -> bool:
    """Whether two shapes may be the same, given what is unknown of them."""
    if expected is None or found is None:
        return True
    return len(expected) == len(found) and all(a == b or a is None or b is None for a, b in zip(expected, found))


def _filled(tensor: Tensor, value: Value) -> Tensor:
    dtype = value.dtype if tensor.dtype == UNDEFINED else tensor.dtype
    shape = tensor.shape
    if shape is None:
        shape = value.shape
    elif value.shape is not None and fits(shape, value.shape):
        shape = tuple(b if a is None else a for a, b in zip(shape, value.shape))
    return Tensor(tensor.name, dtype, shape)


def broadcast(one: Optional[Shape], other: Optional[Shape]) -> Optional[Shape]:
    """The shape of an element-wise op on two shapes, by the rules of NumPy."""
    if one is None or other is None:
        return None
    rank = max(len(one), len(other))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in (one, other)]
    return tuple(_broadcast_dimension(a, b, one, other) for a, b in zip(*padded))


def _broadcast_dimension(a: Optional[int], b: Optional[int], one: Shape, other: Shape) -> Optional[int]:
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if a is None or b is None:
        return b if a is None else a
    raise MismatchError(f"shapes {shape_text(one)} and {shape_text(other)} do not broadcast")


def _ints(op: Op, name: str, default: Sequence[int]) -> Tuple[int, ...]:
    value = op.attributes.get(name, tuple(default))
    numbers = tuple(item for item in value if isinstance(item, int)) if isinstance(value, tuple) else ()
    if not isinstance(value, tuple) or len(numbers) != len(value) or len(numbers) != len(default):
        raise MismatchError(f"attribute {name!r} is {value!r}, and {len(default)} integers are needed")
    return numbers


def _int(op: Op, name: str, default: int) -> int:
    value = op.attributes.get(name, default)
    if not isinstance(value, int):
        raise MismatchError(f"attribute {name!r} is {value!r}, and an integer is needed")
    return value


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise MismatchError(f"axis {axis} is outside a shape of {rank} dimensions")
    return axis % rank


def _each(op: Op, inputs: Sequence[Value]) -> List[Value]:
    return list(inputs[: len(op.outputs)])


def _first(op: Op, inputs: Sequence[Value]) -> List[Value]:
    return [inputs[0]]


def _dropout(op: Op, inputs: Sequence[Value]) -> List[Value]:
    return [inputs[0], Value("BOOL", inputs[0].shape)][: len(op.outputs)]


def _same_dtype(inputs: Sequence[Value]) -> str:
    known = list(dict.fromkeys(value.dtype for value in inputs if value.dtype != UNDEFINED))
    if len(known) > 1:
        raise MismatchError(f"inputs have different dtypes, {known[0]} and {known[1]}")
    return known[0] if known else UNDEFINED


def _elementwise(op: Op, inputs: Sequence[Value]) -> List[Value]:
    shape = inputs[0].shape
    for value in inputs[1:]:
        shape = broadcast(shape, value.shape)
    return [Value(_same_dtype(inputs), shape)]


def _comparison(op: Op, inputs: Sequence[Value]) -> List[Value]:
    return [Value("BOOL", _elementwise(op, inputs)[0].shape)]


def _matmul(op: Op, inputs: Sequence[Value]) -> List[Value]:
    left, right = _two(inputs)
    dtype = _same_dtype(inputs)
    if left.shape is None or right.shape is None:
        return [Value(dtype)]
    if not left.shape or not right.shape:
        raise MismatchError("a scalar cannot be multiplied as a matrix")
    a = (1, *left.shape) if len(left.shape) == 1 else left.shape
    b = (*right.shape, 1) if len(right.shape) == 1 else right.shape
    _require_equal(a[-1], b[-2], left.shape, right.shape)
    batch = broadcast(a[:-2], b[:-2]) or ()
    rows = a[-2:-1] if len(left.shape) > 1 else ()
    columns = b[-1:] if len(right.shape) > 1 else ()
    return [Value(dtype, (*batch, *rows, *columns))]


def _gemm(op: Op, inputs: Sequence[Value]) -> List[Value]:
    left, right = _two(inputs)
    dtype = _same_dtype(inputs)
    if left.shape is None or right.shape is None:
        return [Value(dtype)]
    if len(left.shape) != 2 or len(right.shape) != 2:
        raise MismatchError(f"shapes {shape_text(left.shape)} and {shape_text(right.shape)} are not two matrices")
    a = left.shape[::-1] if _int(op, "transA", 0) else left.shape
    b = right.shape[::-1] if _int(op, "transB", 0) else right.shape
    _require_equal(a[1], b[0], left.shape, right.shape)
    return [Value(dtype, (a[0], b[1]))]


def _conv(op: Op, inputs: Sequence[Value]) -> List[Value]:
    image, kernel = _two(inputs)
    dtype = _same_dtype(inputs)
    if image.shape is None or kernel.shape is None:
        return [Value(dtype)]
    if len(image.shape) != len(kernel.shape) or len(image.shape) < 3:
        raise MismatchError(f"shapes {shape_text(image.shape)} and {shape_text(kernel.shape)} are not image and kernel")
    group = _int(op, "group", 1)
    per_group = kernel.shape[1]
    if per_group is not None:
        _require_equal(image.shape[1], per_group * group, image.shape, kernel.shape)
    spatial = _window(op, image.shape[2:], kernel.shape[2:])
    return [Value(dtype, (image.shape[0], kernel.shape[0], *spatial))]


def _pool(op: Op, inputs: Sequence[Value]) -> List[Value]:
    dtype, shape = inputs[0]
    if shape is None:
        return [Value(dtype)]
    if len(shape) < 3:
        raise MismatchError(f"shape {shape_text(shape)} is not an image")
    if "kernel_shape" not in op.attributes:
        raise MismatchError("attribute 'kernel_shape' is missing")
    window = _ints(op, "kernel_shape", [1] * len(shape[2:]))
    return [Value(dtype, (*shape[:2], *_window(op, shape[2:], window)))]


def _window(op: Op, spatial: Shape, kernel: Shape) -> Shape:
    rank = len(spatial)
    strides, dilations = _ints(op, "strides", [1] * rank), _ints(op, "dilations", [1] * rank)
    pads, auto_pad = _ints(op, "pads", [0] * 2 * rank), op.attributes.get("auto_pad", "NOTSET")
    if min((*strides, *dilations), default=1) < 1:
        raise MismatchError("strides and dilations are at least 1")
    lengths: List[Optional[int]] = []
    for axis, (length, width) in enumerate(zip(spatial, kernel)):
        if length is None or width is None:
            lengths.append(None)
            continue
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            lengths.append(-(-length // strides[axis]))
            continue
        padding = 0 if auto_pad == "VALID" else pads[axis] + pads[axis + rank]
        free = length + padding - dilations[axis] * (width - 1) - 1
        if free < 0:
            raise MismatchError(f"a window of {width} does not fit into {length} with a padding of {padding}")
        up = strides[axis] - 1 if _int(op, "ceil_mode", 0) else 0
        lengths.append((free + up) // strides[axis] + 1)
    return tuple(lengths)


def _global_pool(op: Op, inputs: Sequence[Value]) -> List[Value]:
    dtype, shape = inputs[0]
    return [Value(dtype, None if shape is None else (*shape[:2], *(1 for _ in shape[2:])))]


def _flatten(op: Op, inputs: Sequence[Value]) -> List[Value]:
    dtype, shape = inputs[0]
    if shape is None:
        return [Value(dtype)]
    axis = _int(op, "axis", 1)
    cut = len(shape) if axis == len(shape) else _axis(axis, len(shape))
    return [Value(dtype, (_product(shape[:cut]), _product(shape[cut:])))]


def _transpose(op: Op, inputs: Sequence[Value]) -> List[Value]:
    dtype, shape = inputs[0]
    if shape is None:
        return [Value(dtype)]
    order = _ints(op, "perm", list(range(len(shape)))[::-1])
    if sorted(order) != list(range(len(shape))):
        raise MismatchError(f"attribute 'perm' is {order!r}, which is not an order of {len(shape)} dimensions")
    return [Value(dtype, tuple(shape[axis] for axis in order))]


def _concat(op: Op, inputs: Sequence[Value]) -> List[Value]:
    dtype = _same_dtype(inputs)
    shapes = [value.shape for value in inputs if value.shape is not None]
    if len(shapes) < len(inputs):
        return [Value(dtype)]
    axis = _axis(_int(op, "axis", 0), len(shapes[0]))
    rest = (*shapes[0][:axis], None, *shapes[0][axis + 1 :])
    total: Optional[int] = 0
    for shape in shapes:
        if not fits(rest, shape):
            raise MismatchError(f"shapes {shape_text(shapes[0])} and {shape_text(shape)} do not join on axis {axis}")
        length = shape[axis]
        total = None if total is None or length is None else total + length
    return [Value(dtype, (*shapes[0][:axis], total, *shapes[0][axis + 1 :]))]


def _reduce(op: Op, inputs: Sequence[Value]) -> List[Value]:
    dtype, shape = inputs[0]
    if shape is None or len(inputs) > 1:  # newer opsets give the axes as an input, whose values are not known here
        return [Value(dtype)]
    declared = op.attributes.get("axes")
    axes = _ints(op, "axes", range(len(declared) if isinstance(declared, tuple) else len(shape)))
    gone = {_axis(axis, len(shape)) for axis in axes}
    keep = _int(op, "keepdims", 1)
    return [Value(dtype, tuple(1 if i in gone else d for i, d in enumerate(shape) if keep or i not in gone))]


def _two(inputs: Sequence[Value]) -> Sequence[Value]:
    if len(inputs) < 2:
        raise MismatchError(f"it has {len(inputs)} input, and two are needed")
    return inputs[:2]


def _require_equal(one: Optional[int], other: Optional[int], left: Shape, right: Shape) -> None:
    if one is not None and other is not None and one != other:
        raise MismatchError(f"shapes {shape_text(left)} and {shape_text(right)} do not fit: {one} is not {other}")


def _product(shape: Shape) -> Optional[int]:
    total: Optional[int] = 1
    for dimension in shape:
        total = None if total is None or dimension is None else total * dimension
    return total


_KEEP_FIRST = (
    "Abs", "Ceil", "Clip", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "Identity", "LeakyRelu",
    "Log", "LogSoftmax", "Neg", "Not", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softmax", "Softplus",
    "Softsign", "Sqrt", "Tanh", "BatchNormalization", "InstanceNormalization", "GroupNormalization", "LRN",
    "SGD0VarUpdate", "SGD1VarUpdate", "AdamVarUpdate",
)  # fmt: skip
"""The types whose output is like their first input."""

RULES: Dict[str, Rule] = {
    **dict.fromkeys(("IpuCopy", "ReplicatedAllReduce", "ReplicatedAllReduceInplace"), _each),
    **dict.fromkeys(_KEEP_FIRST, _first),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean"), _elementwise),
    **dict.fromkeys(("Equal", "Greater", "Less", "And", "Or", "Xor"), _comparison),
    **dict.fromkeys(("MaxPool", "AveragePool"), _pool),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _global_pool),
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"), _reduce),
    "Dropout": _dropout,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "Flatten": _flatten,
    "Transpose": _transpose,
    "Concat": _concat,
}
