"""Ops of TensorFlow that ONNX has not: gradients, assignments, batch norm with channels last."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Tuple

import numpy as np

from ipu_conformance.interpreter.calls import Array, Call, ExecutionError, Function, Table, oracle, vjp
from ipu_conformance.interpreter.forward import MASK
from ipu_conformance.interpreter.inputs import KEPT
from ipu_conformance.interpreter.tensor_lists import TENSOR_LISTS

DOMAIN = "tensorflow::"
FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)
"""The axes of images with channels last in the order of channels first, and back."""
MASKS = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
KERNEL, BACK = (3, 2, 0, 1), (2, 3, 1, 0)


def _first(call: Call, value: Array) -> Array:
    """Images with channels first."""
    return value.transpose(FIRST) if _channels_last(call) else value


def _as_given(call: Call, value: Array) -> Array:
    return value.transpose(LAST) if _channels_last(call) else value


def _channels_last(call: Call) -> bool:
    return str(call.attribute("data_format", default="NHWC")) == "NHWC"


def _geometry(call: Call) -> Dict[str, Any]:
    space = slice(1, 3) if _channels_last(call) else slice(2, 4)
    words: Dict[str, Any] = {
        "stride": tuple(call.attribute("strides"))[space],
        "padding": str(call.attribute("padding")),
    }
    if words["padding"] not in ("SAME", "VALID"):
        raise ExecutionError(f"{call.place} pads {words['padding']}, which is not known: SAME and VALID are.")
    if "dilations" in call.op.attributes:
        words["dilation"] = tuple(call.attribute("dilations"))[space]
    if "ksize" in call.op.attributes:
        words["kernel"] = tuple(call.attribute("ksize"))[space]
    return words


def _convolution(call: Call) -> Array:
    return _as_given(call, oracle("conv", _first(call, call[0]), call[1].transpose(KERNEL), **_geometry(call)))


def _pool(name: str) -> Function:
    def function(call: Call) -> Array:
        words = _geometry(call) if name == "max_pool" else {**_geometry(call), "count_include_pad": False}
        return _as_given(call, oracle(name, _first(call, call[0]), **words))

    return function


def _conv_input(call: Call) -> Array:
    """Reads the shape of the input, the filter and dy."""
    zeros = _first(call, np.zeros([int(length) for length in call[0]]))
    gradient = vjp("conv", _first(call, call[2]), zeros, call[1].transpose(KERNEL), **_geometry(call))[0]
    return _as_given(call, gradient)


def _conv_filter(call: Call) -> Array:
    """Reads the input, the shape of the filter and dy."""
    zeros = np.zeros([int(length) for length in call[1]]).transpose(KERNEL)
    gradient = vjp("conv", _first(call, call[2]), _first(call, call[0]), zeros, **_geometry(call))[1]
    return gradient.transpose(BACK)


def _max_pool(call: Call) -> Array:
    return _as_given(call, vjp("max_pool", _first(call, call[2]), _first(call, call[0]), **_geometry(call))[0])


def _average_pool(call: Call) -> Array:
    zeros = _first(call, np.zeros([int(length) for length in call[0]]))
    words = {**_geometry(call), "count_include_pad": False}
    return _as_given(call, vjp("avg_pool", _first(call, call[1]), zeros, **words)[0])


def _batch_norm(call: Call) -> Tuple[Array, ...]:
    """The result, the statistics that are kept, and those of the batch, which the gradient reads."""
    x, scale, bias, mean, variance = _first(call, call[0]), *call.inputs[1:5]
    epsilon = float(call.attribute("epsilon"))
    if not int(call.attribute("is_training", default=1)):
        value = oracle("batch_norm_inference", x, scale, bias, mean, variance, epsilon=epsilon)
        return (_as_given(call, value), *(np.asarray(each) for each in (mean, variance, mean, variance)), np.zeros(()))
    share = float(call.attribute("exponential_avg_factor", default=1.0))
    own = (x.mean(axis=(0, 2, 3)), x.var(axis=(0, 2, 3)))
    kept = call[3].size > 0  # a layer norm is written with this op, and keeps no statistics
    moved = oracle("batch_norm_statistics", x, mean, variance, momentum=share, unbiased=True) if kept else own
    value = oracle("batch_norm", x, scale, bias, epsilon=epsilon)
    return (_as_given(call, value), *moved, *own, np.zeros(()))


def _batch_norm_gradient(call: Call) -> Tuple[Array, ...]:
    dy, x, scale = _first(call, call[0]), _first(call, call[1]), call[2]
    gradients = vjp("batch_norm", dy, x, scale, np.zeros_like(scale), epsilon=float(call.attribute("epsilon")))
    return (_as_given(call, gradients[0]), gradients[1], gradients[2], np.zeros(0), np.zeros(0))


def _product(call: Call) -> Array:
    sides = [
        value.swapaxes(-1, -2) if call.attribute(f"transpose_{side}", default=False) else value
        for side, value in zip("ab", call.given)
    ]
    return oracle("matmul", *sides)


def _biased(call: Call) -> Array:
    behind = 0 if _channels_last(call) else call[0].ndim - 2
    return call[0] + call[1].reshape(-1, *(1,) * behind)


def _bias(call: Call) -> Array:
    axis = call[0].ndim - 1 if _channels_last(call) else 1
    return call[0].sum(axis=tuple(each for each in range(call[0].ndim) if each != axis))


def _cross_entropy(call: Call) -> Tuple[Array, Array]:
    """The loss of every row, and its gradient by the scores."""
    labels = call[1].astype(np.int64)
    loss = oracle("cross_entropy_loss", call[0], labels, reduction="none")
    return loss, vjp("cross_entropy_loss", np.ones_like(loss), call[0], labels, reduction="none")[0]


def _sum(call: Call) -> Array:
    axes = tuple(int(axis) for axis in np.ravel(call[1]))
    return call[0].sum(axis=axes, keepdims=bool(call.attribute("keep_dims", default=0)))


def _mean(call: Call) -> Array:
    axes = tuple(int(axis) for axis in np.ravel(call[1]))
    return oracle("mean", call[0], axis=axes, keepdims=bool(call.attribute("keep_dims", default=0)))


def _padded(call: Call) -> Array:
    return oracle("pad", call[0], pads=[(int(a), int(b)) for a, b in call[1]], mode="constant", value=0.0)


def _sliced(call: Call) -> Array:
    """From a begin, a size along each axis; minus one is all that is left."""
    ends = [None if size == -1 else int(first + size) for first, size in zip(call[1], call[2])]
    return call[0][tuple(slice(int(first), end) for first, end in zip(call[1], ends))]


def _offsets(call: Call) -> Tuple[Array, ...]:
    """Where each of several joined arrays begins; reads the axis, then their shapes."""
    axis, shapes = int(call[0]), call.given[1:]
    begins = np.cumsum([0, *(shape[axis] for shape in shapes[:-1])])
    return tuple(np.where(np.arange(len(shape)) == axis, begin, 0) for shape, begin in zip(shapes, begins))


def _resized(call: Call) -> Dict[str, Any]:
    if int(call.attribute("align_corners", default=0)):
        raise ExecutionError(f"{call.place} aligns corners, which is not known.")
    half = int(call.attribute("half_pixel_centers", default=0))
    return {"coordinates": "half_pixel" if half else "asymmetric"}


def _resize(call: Call) -> Array:
    """Images with channels last, whatever the attributes say: the op has no other."""
    size = tuple(int(length) for length in call[1])
    return oracle("interpolate_nearest", call[0].transpose(FIRST), size=size, **_resized(call)).transpose(LAST)


def _resize_gradient(call: Call) -> Array:
    """Reads dy and the height and width of the input."""
    dy = call[0].transpose(FIRST)
    zeros = np.zeros((*dy.shape[:2], *(int(length) for length in call[1])))
    return vjp("interpolate_nearest", dy, zeros, size=dy.shape[2:], **_resized(call))[0].transpose(LAST)


def _segments(call: Call) -> Array:
    """The sums of the rows with the same number; reads the rows, their numbers and how many sums there are."""
    sums = np.zeros((int(call[2]), *call[0].shape[call[1].ndim :]))
    np.add.at(sums, call[1].astype(np.int64), call[0])
    return sums


def _strided(call: Call) -> Array:
    """A slice by begins, ends and steps."""
    return np.asarray(call[0][_slices(call, 1)])


def _strided_gradient(call: Call) -> Array:
    """Reads the shape of what was sliced, the begins, ends and steps, and dy."""
    gradient = np.zeros([int(length) for length in call[0]])
    gradient[_slices(call, 1)] = call[4]
    return gradient


def _slices(call: Call, first: int) -> Tuple[Any, ...]:
    """The slices of three inputs; bits of masks say which ends are left out, and which axes are dropped."""
    masks = {word: int(call.attribute(f"{word}_mask", default=0)) for word in MASKS}
    if masks["ellipsis"] or masks["new_axis"]:
        raise ExecutionError(f"{call.place} has an ellipsis or a new axis, which are not known.")
    taken: List[Any] = []
    for axis, (begin, end, step) in enumerate(zip(*(np.ravel(call[first + place]) for place in range(3)))):
        bit = 1 << axis
        if masks["shrink_axis"] & bit:
            taken.append(int(begin))
        else:
            start, last = (None if masks[word] & bit else int(each) for word, each in (("begin", begin), ("end", end)))
            taken.append(slice(start, last, int(step)))
    return tuple(taken)


def _drawn(call: Call) -> Array:
    """What a dropout draws: it keeps what is not below its rate, so that what is kept is one and the rest zero."""
    mask = call.get(MASK)
    if mask is None:
        raise ExecutionError(
            f"{call.place} draws numbers and the dump does not hold them: give what a dropout keeps, as ones and zeros "
            f"under {call.op.outputs[0] + KEPT!r}."
        )
    return mask


def _squeezed(call: Call) -> Array:
    """Without the axes that are named, or without all of length one."""
    axes = tuple(int(axis) for axis in np.ravel(call.attribute("squeeze_dims", "axis", default=())))
    return np.squeeze(call[0], axis=axes or None)


def _divided(call: Call) -> Array:
    """A quotient that is zero where the divisor is."""
    x, y = np.broadcast_arrays(call[0], call[1])
    return np.divide(x, y, out=np.zeros(y.shape), where=y != 0)


def _assigning(change: Callable[[Array, Array], Array]) -> Function:
    return lambda call: change(call[0], call[1])


ASSIGNMENTS: Mapping[str, Function] = {
    f"{DOMAIN}{name}": function
    for name, function in {
        "AssignVariableOp": _assigning(lambda before, value: np.broadcast_to(value, before.shape).copy()),
        "AssignAddVariableOp": _assigning(lambda before, value: before + value),
        "AssignSubVariableOp": _assigning(lambda before, value: before - value),
        "ResourceApplyGradientDescent": lambda call: call[0] - call[1] * call[2],
    }.items()
}
"""Ops that change the variable that is their first input."""
TENSORFLOW: Table = {
    **ASSIGNMENTS,
    **{
        f"{DOMAIN}{name}": function
        for name, function in {
            "ReluGrad": lambda call: call[0] * (call[1] > 0),
            "TanhGrad": lambda call: call[1] * (1 - call[0] * call[0]),
            "SigmoidGrad": lambda call: call[1] * call[0] * (1 - call[0]),
            "RsqrtGrad": lambda call: call[1] * -0.5 * call[0] ** 3,
            "MatMul": _product,
            "BiasAdd": _biased,
            "BiasAddGrad": _bias,
            "SparseSoftmaxCrossEntropyWithLogits": _cross_entropy,
            "Conv2D": _convolution,
            "MaxPool": _pool("max_pool"),
            "AvgPool": _pool("avg_pool"),
            "Conv2DBackpropInput": _conv_input,
            "Conv2DBackpropFilter": _conv_filter,
            "MaxPoolGrad": _max_pool,
            "AvgPoolGrad": _average_pool,
            "FusedBatchNormV3": _batch_norm,
            "FusedBatchNormGradV3": _batch_norm_gradient,
            "ShapeN": lambda call: tuple(np.array(value.shape, np.int64) for value in call.given),
            "InvertPermutation": lambda call: np.argsort(call[0]),
            "Transpose": lambda call: call[0].transpose([int(axis) for axis in call[1]]),
            "Sum": _sum,
            "Mean": _mean,
            "Prod": lambda call: np.prod(call[0], axis=tuple(int(axis) for axis in np.ravel(call[1]))),
            "Fill": lambda call: np.full([int(length) for length in call[0]], call[1]),
            "Einsum": lambda call: np.einsum(str(call.attribute("equation")), *call.given),
            "Softmax": lambda call: oracle("softmax", call[0], axis=-1),
            "Pad": _padded,
            "Slice": _sliced,
            "ConcatV2": lambda call: np.concatenate(call.given[:-1], axis=int(call.given[-1])),
            "ConcatOffset": _offsets,
            "FloorMod": lambda call: np.mod(call[0], call[1]),
            "ResizeNearestNeighbor": _resize,
            "ResizeNearestNeighborGrad": _resize_gradient,
            "UnsortedSegmentSum": _segments,
            "L2Loss": lambda call: np.sum(call[0] * call[0]) / 2,
            "StridedSlice": _strided,
            "DivNoNan": _divided,
            "ExpandDims": lambda call: np.expand_dims(call[0], int(np.ravel(call[1])[0])),
            "Pack": lambda call: np.stack(call.given, axis=int(call.attribute("axis", default=0))),
            "Squeeze": _squeezed,
            "RandomUniform": _drawn,
            "ZerosLike": lambda call: call[0] * 0,
            "Split": lambda call: tuple(np.split(call[1], int(call.attribute("num_split")), axis=int(call[0]))),
            "StridedSliceGrad": _strided_gradient,
            **TENSOR_LISTS,
            "Range": lambda call: np.arange(*(each.item() for each in call.given)),
        }.items()
    },
}
"""Every such op by its type."""
