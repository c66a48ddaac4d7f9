"""Rules of the normal form for layers that frameworks write in several ops, and for ops that read constants.

Each is given the graph that is being rewritten and an op, and says whether it has put something in the op's place.
"""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol, Sequence, Tuple

from ipu_conformance.ir.graph import Op
from ipu_conformance.ir.tensor import Literal, Shape, Tensor

_FORMATS = {"INT64": "q", "INT32": "i", "FLOAT": "f", "FLOAT16": "e", "DOUBLE": "d"}
_DIGITS = 6
"""The digits in which factors are the same: a quotient and a product with the reciprocal round differently."""
FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)
"""The axes of images with channels last in the order of channels first, and back."""


class Work(Protocol):
    """A graph that is being rewritten."""

    weights: Dict[str, Optional[bytes]]
    tensors: Dict[str, Tensor]
    makers: Dict[str, Op]

    def shape(self, name: str) -> Optional[Shape]: ...

    def fresh(self, stem: str, dtype: str, shape: Optional[Shape]) -> str: ...

    def emit(self, op: Op) -> None: ...

    def turn(self, op: Op, source: str, order: Tuple[int, ...], output: str = "") -> str: ...


Rule = Callable[[Any, Op], bool]


def order_of(op: Op) -> Tuple[int, ...]:
    """The order of a Transpose; empty where it is not a permutation."""
    perm = op.attributes.get("perm", ())
    order = tuple(axis for axis in perm if isinstance(axis, int)) if isinstance(perm, tuple) else ()
    return order if sorted(order) == list(range(len(order))) else ()


def constants(ops: Sequence[Op]) -> Dict[str, Literal]:
    """The values of Constants, which are weights with values in other graphs."""
    values = {op.outputs[0]: op.attributes.get("value") for op in ops if op.type == "Constant" and len(op.outputs) == 1}
    return {name: value for name, value in values.items() if isinstance(value, Literal)}


def _numbers(work: Work, name: str) -> Optional[Tuple[Any, ...]]:
    """The values of a small constant; None where they are not known."""
    data, form = work.weights.get(name), _FORMATS.get(work.tensors[name].dtype if name in work.tensors else "")
    return None if data is None or form is None else tuple(value for (value,) in struct.iter_unpack(f"<{form}", data))


def slice_by_attributes(work: Work, op: Op) -> bool:
    """A Slice of constant bounds has them as attributes, counted from the front; steps of one are left out."""
    words = ("starts", "ends", "axes", "steps")
    shape = work.shape(op.inputs[0])
    bounds = {
        word: _numbers(work, name) if place < len(op.inputs) and name else op.attributes.get(word)
        for place, (word, name) in enumerate(zip(words, (*op.inputs[1:], "", "", "", "")), 1)
    }
    starts, ends = bounds["starts"], bounds["ends"]
    if shape is None or None in shape or not isinstance(starts, tuple) or not isinstance(ends, tuple):
        return False
    axes = bounds["axes"] if isinstance(bounds["axes"], tuple) else tuple(range(len(starts)))
    steps = bounds["steps"] if isinstance(bounds["steps"], tuple) else (1,) * len(starts)
    same = len(starts) == len(ends) == len(axes) == len(steps)
    if set(steps) != {1} or not same or not all(-len(shape) <= int(axis) < len(shape) for axis in axes):
        return False
    lengths = [shape[int(axis)] or 0 for axis in axes]
    inside = [
        tuple(max(0, min(int(bound) + length * (int(bound) < 0), length)) for bound, length in zip(each, lengths))
        for each in (starts, ends)
    ]
    attributes = {"starts": inside[0], "ends": inside[1], "axes": tuple(int(axis) % len(shape) for axis in axes)}
    work.emit(replace(op, inputs=op.inputs[:1], attributes=attributes))
    return True


def _repeats(work: Work, one: str, other: str, axes: Sequence[int]) -> bool:
    """Is one shape the other with lengths along axes multiplied?"""
    before, after = work.shape(one), work.shape(other)
    if before is None or after is None or len(before) != len(after) or None in (*before, *after):
        return False
    return all((b or 0) % (a or 1) == 0 if axis in axes else a == b for axis, (a, b) in enumerate(zip(before, after)))


def resize(work: Work, op: Op) -> bool:
    """A resizing to the nearest value by whole factors repeats values, whatever the coordinates are called."""
    if op.attributes.get("mode", "nearest") != "nearest" or not _repeats(work, op.inputs[0], op.outputs[0], (2, 3)):
        return False
    work.emit(replace(op, type="Resize", inputs=op.inputs[:1], attributes={"mode": "nearest"}))
    return True


def resize_of_tensorflow(work: Work, op: Op) -> bool:
    """The same with channels last."""
    shape = work.shape(op.outputs[0])
    if shape is None or len(shape) != 4 or op.attributes.get("align_corners"):
        return False
    if not _repeats(work, op.inputs[0], op.outputs[0], (1, 2)):
        return False
    _channels_first(work, op, "Resize", [work.turn(op, op.inputs[0], FIRST)], {"mode": "nearest"})
    return True


def transposed_convolution(work: Work, op: Op) -> bool:
    """A transposed convolution of TensorFlow is its gradient by the input; reads sizes, the filter and the data."""
    shape, filter = work.shape(op.outputs[0]), work.shape(op.inputs[1]) if len(op.inputs) > 1 else None
    strides, dilations = (op.attributes.get(word) for word in ("strides", "dilations"))
    plain = op.attributes.get("data_format") == "NHWC" and op.attributes.get("padding") == "VALID"
    if not plain or not isinstance(strides, tuple) or len(strides) != 4 or dilations != (1,) * 4 or len(op.inputs) != 3:
        return False
    if shape is None or filter is None or not len(shape) == len(filter) == len(work.shape(op.inputs[2]) or ()) == 4:
        return False
    kernel = work.turn(op, op.inputs[1], (3, 2, 0, 1))
    attributes = {
        "dilations": (1, 1),
        "group": 1,
        "kernel_shape": filter[:2],
        "pads": (0,) * 4,
        "strides": strides[1:3],
    }
    _channels_first(work, op, "ConvTranspose", [work.turn(op, op.inputs[2], FIRST), kernel], attributes)
    return True


def _channels_first(work: Work, op: Op, type: str, inputs: List[str], attributes: Mapping[str, Any]) -> None:
    """An op on images with channels first, and its result with channels last."""
    shape, dtype = work.shape(op.outputs[0]) or (), work.tensors[op.outputs[0]].dtype
    inner = work.fresh(op.outputs[0], dtype, tuple(shape[axis] for axis in FIRST))
    work.emit(replace(op, type=type, inputs=tuple(inputs), outputs=(inner,), attributes=attributes))
    work.turn(op, inner, LAST, op.outputs[0])


def _turned(work: Work, name: str) -> Tuple[int, ...]:
    maker = work.makers.get(name)
    return order_of(maker) if maker is not None and maker.type == "Transpose" else ()


def _before(work: Work, name: str) -> str:
    return work.makers[name].inputs[0]


def _behind(work: Work, op: Op, order: Tuple[int, ...], inputs: Sequence[str], attributes: Mapping[str, Any]) -> None:
    """The op on what was transposed, and the Transpose behind it."""
    shape: List[Optional[int]] = [None] * len(order)
    for place, axis in enumerate(order):
        shape[axis] = (work.shape(op.outputs[0]) or ())[place]
    inner = work.fresh(op.outputs[0], work.tensors[op.outputs[0]].dtype, tuple(shape))
    work.emit(replace(op, inputs=tuple(inputs), outputs=(inner,), attributes=attributes))
    work.turn(op, inner, order, op.outputs[0])


def _has_rank(work: Work, op: Op, rank: int) -> bool:
    shape = work.shape(op.outputs[0])
    return shape is not None and len(shape) == rank


def concat(work: Work, op: Op) -> bool:
    """A Transpose of all that is joined moves behind it."""
    orders = {_turned(work, name) for name in op.inputs}
    axis, order = op.attributes.get("axis"), next(iter(orders))
    if (
        len(orders) != 1
        or not isinstance(axis, int)
        or not 0 <= axis < len(order)
        or not _has_rank(work, op, len(order))
    ):
        return False
    _behind(work, op, order, [_before(work, name) for name in op.inputs], {"axis": order[axis]})
    return True


def _axes_of(axes: object, rank: int) -> bool:
    """Are these axes of a value of this rank, counted from the front?"""
    return isinstance(axes, tuple) and all(isinstance(axis, int) and 0 <= axis < rank for axis in axes)


def mean(work: Work, op: Op) -> bool:
    """A mean over axes of what was transposed is one over other axes, if the rest stays in order."""
    order, axes = _turned(work, op.inputs[0]), op.attributes.get("axes")
    if not order or not _axes_of(axes, len(order)) or op.attributes.get("keepdims", 1):
        return False
    rest = [order[axis] for axis in range(len(order)) if axis not in (axes if isinstance(axes, tuple) else ())]
    if rest != sorted(rest):
        return False
    turned = tuple(sorted({*range(len(order))} - {*rest}))
    work.emit(replace(op, inputs=(_before(work, op.inputs[0]),), attributes={**op.attributes, "axes": turned}))
    return True


def pad(work: Work, op: Op) -> bool:
    """A Transpose before a Pad with zeros moves behind it; the widths are attributes."""
    widths = _numbers(work, op.inputs[1]) if len(op.inputs) > 1 else op.attributes.get("pads")
    filled = _numbers(work, op.inputs[2]) if len(op.inputs) > 2 and op.inputs[2] else (0.0,)
    if not isinstance(widths, tuple) or filled != (0.0,) or op.attributes.get("mode", "constant") != "constant":
        return False
    order = _turned(work, op.inputs[0])
    rank = len(order)
    if not order or len(widths) != 2 * rank or not _has_rank(work, op, rank):
        work.emit(replace(op, inputs=op.inputs[:1], attributes={"pads": widths}))
        return True
    turned: List[Any] = [0] * (2 * rank)
    for place, axis in enumerate(order):
        turned[axis], turned[axis + rank] = widths[place], widths[place + rank]
    _behind(work, op, order, [_before(work, op.inputs[0])], {"pads": tuple(turned)})
    return True


def padded_convolution(work: Work, op: Op) -> bool:
    """A Pad of height and width before a convolution is the convolution's."""
    maker, own = work.makers.get(op.inputs[0]), op.attributes.get("pads")
    widths = maker.attributes.get("pads") if maker is not None and maker.type == "Pad" else None
    if maker is None or not isinstance(widths, tuple) or not isinstance(own, tuple) or len(widths) != len(own) + 4:
        return False
    rank = len(widths) // 2
    if any(widths[place] for place in (0, 1, rank, rank + 1)):
        return False
    both = (*widths[2:rank], *widths[rank + 2 :])
    pads = tuple(int(str(a)) + int(str(b)) for a, b in zip(both, own))
    work.emit(replace(op, inputs=(maker.inputs[0], *op.inputs[1:]), attributes={**op.attributes, "pads": pads}))
    return True


def layer_norm(work: Work, op: Op) -> bool:
    """A layer norm of rows that were put below one another is one of what they were before."""
    maker = work.makers.get(op.inputs[0])
    rows, scale = work.shape(op.inputs[0]), work.shape(op.inputs[1]) if len(op.inputs) > 1 else None
    if maker is None or maker.type != "Reshape" or rows is None or len(rows) != 2 or scale != rows[-1:]:
        return False
    whole = work.shape(maker.inputs[0])
    if op.attributes.get("num_groups") != 1 or whole is None or whole[-1] != rows[-1]:
        return False
    inner = work.fresh(op.outputs[0], work.tensors[op.outputs[0]].dtype, whole)
    work.emit(replace(op, inputs=(maker.inputs[0], *op.inputs[1:]), outputs=(inner,)))
    work.emit(replace(op, type="Reshape", inputs=(inner,), attributes={}))
    return True


def scaled(work: Work, op: Op) -> bool:
    """A product with a number, or a quotient by one, is a Scale."""
    if len(op.inputs) != 2:
        return False
    for value, factor in (op.inputs, op.inputs[::-1]) if op.type == "Mul" else (op.inputs,):
        number = _numbers(work, factor) if work.shape(factor) == () and value not in work.weights else None
        if number is not None and number[0] and math.isfinite(1.0 / number[0]) and math.isfinite(number[0]):
            scale = number[0] if op.type == "Mul" else 1.0 / number[0]
            work.emit(replace(op, type="Scale", inputs=(value,), attributes={"scale": _rounded(scale)}))
            return True
    return False


def scale(work: Work, op: Op) -> bool:
    """A Scale has its factor in the digits in which factors are the same."""
    factor = op.attributes.get("scale")
    if not isinstance(factor, float) or _rounded(factor) == factor:
        return False
    work.emit(replace(op, attributes={"scale": _rounded(factor)}))
    return True


def _rounded(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")


def scaled_behind(work: Work, op: Op) -> bool:
    """A Scale before a Transpose or a factor of a product moves behind it."""
    for place, name in enumerate(op.inputs[:2]):
        maker = work.makers.get(name)
        if maker is None or maker.type != "Scale":
            continue
        output = op.outputs[0]
        inner = work.fresh(output, work.tensors[output].dtype, work.shape(output))
        inputs = [*op.inputs]
        inputs[place] = maker.inputs[0]
        work.emit(replace(op, inputs=tuple(inputs), outputs=(inner,)))
        work.emit(replace(maker, name=op.name, inputs=(inner,), outputs=(output,)))
        return True
    return False


RULES: Mapping[str, Rule] = {
    "Scale": scale,
    "Slice": slice_by_attributes,
    "Resize": resize,
    "tensorflow::ResizeNearestNeighbor": resize_of_tensorflow,
    "tensorflow::Conv2DBackpropInput": transposed_convolution,
    "Concat": concat,
    "ReduceMean": mean,
    "Pad": pad,
    "Conv": padded_convolution,
    "GroupNormalization": layer_norm,
}
"""The rules by the types of ops."""
