"""What the handlers of an IPU build do not take of ops that they know, as rows.

The sources are public: PaddlePaddle/Paddle, ``paddle/fluid/platform/device/ipu/popart_canonicalization``. Some handlers
refuse an attribute. Others do not read one, and a device would compute something else in silence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Sequence, Tuple

from ipu_conformance.emulator.faults.refusals import Refusal
from ipu_conformance.emulator.paddle import refusals
from ipu_conformance.ir.readers.paddle.ops import DTYPES, Call, Writer

IMAGES = ("NCHW", "AnyLayout")
REFUSED, WRONG, UNREAD = refusals.ATTRIBUTE, refusals.ARGUMENT, refusals.UNREAD_ATTRIBUTE
POOLS = ("pool2d", "max_pool2d_with_index")
PRODUCTS = ("matmul", "matmul_v2")
NORMS = ("layer_norm", "group_norm", "instance_norm")
CONVOLUTIONS = ("conv2d", "depthwise_conv2d")
MOST_DIMENSIONS = 4
"""Dimensions of an operand that a product turns, at the most."""


@dataclass(frozen=True)
class Untaken:
    """Calls that a handler does not take, in words, and how it shows."""

    types: Tuple[str, ...]
    what: str
    when: Callable[[Call, Writer], Any]
    refusal: Refusal


def check(call: Call, to: Writer) -> None:
    """Refuse a call that the handler of its op does not take."""
    for row in ROWS:
        if call.type in row.types:
            row.refusal(type=call.type, what=row.what, found=row.when(call, to))


def _has(name: str, *values: Any) -> Callable[[Call, Writer], Any]:
    return lambda call, to: call.get(name) in values


def _is_other(name: str, *values: Any) -> Callable[[Call, Writer], Any]:
    return lambda call, to: call.get(name) is not None and call.get(name) not in values


def _reads(*slots: str) -> Callable[[Call, Writer], Any]:
    return lambda call, to: any(call.inputs.get(slot) for slot in slots)


def _lacks(*slots: str) -> Callable[[Call, Writer], Any]:
    return lambda call, to: any(not call.inputs.get(slot) for slot in slots)


def _has_windows(call: Call, to: Writer) -> bool:
    return bool(call.get("adaptive", False)) and any(size != 1 for size in call.ints("ksize"))


def _is_explicit(call: Call) -> bool:
    return not (call.get("adaptive", False) or call.get("global_pooling", False))


def _turns_many(call: Call, to: Writer) -> bool:
    sides = (("X", "trans_x", "transpose_X"), ("Y", "trans_y", "transpose_Y"))
    return any(
        (call.get(new, False) or call.get(old, False)) and len(to.shape(call.read(slot))) > MOST_DIMENSIONS
        for slot, new, old in sides
    )


def _pads_otherwise(call: Call, to: Writer) -> bool:
    """Whether top, bottom, left and right are read as top, left, bottom and right."""
    pads = call.ints("paddings")
    return len(pads) == 4 and pads[1] != pads[2]


def _counts_padding(call: Call, to: Writer) -> bool:
    average = call.get("pooling_type") == "avg" and not call.get("exclusive", True)
    return average and _is_explicit(call) and any(call.ints("paddings"))


def _slopes(call: Call, to: Writer) -> bool:
    source, slopes = (len(to.shape(call.read(slot))) for slot in ("X", "Alpha"))
    return source != slopes and (slopes > 1 or source <= 1)


def _grows(shape: Sequence[Any], wanted: Sequence[int]) -> bool:
    return any(length not in (1, size) for length, size in zip(reversed(shape), reversed(wanted)))


def _is_between(call: Call, to: Writer) -> bool:
    return not call.get("align_corners", True) and int(call.get("align_mode", 1)) == 1


def _has_dimensions(name: str) -> Callable[[Call, Writer], Any]:
    return lambda call, to: bool(call.get(name, False)) and len(to.shape(call.read("X"))) > 1


def _has_type(*types: str) -> Callable[[Call, Writer], Any]:
    return lambda call, to: DTYPES.get(call.get("dtype"), types[0]) not in types


ROWS: Tuple[Untaken, ...] = (
    Untaken(("mish",), "a threshold other than 20", _is_other("threshold", 20.0), REFUSED),
    Untaken(("one_hot", "one_hot_v2"), "classes out of range", _has("allow_out_of_range", True), REFUSED),
    Untaken(("pad3d",), "the mode replicate or circular", _has("mode", "replicate", "circular"), REFUSED),
    Untaken(("pad3d",), "the layout NDHWC", _has("data_format", "NDHWC"), REFUSED),
    Untaken(("pad3d",), "paddings that are a tensor", _reads("Paddings"), REFUSED),
    Untaken(("prelu",), "slopes of another rank than one or its input's", _slopes, REFUSED),
    Untaken(("expand_v2",), "a length, which may be -1, for a dimension that has neither it nor 1",
            lambda call, to: _grows(to.shape(call.read("X")), call.ints("shape")), REFUSED),
    Untaken(("strided_slice",), "strides that are tensors", _reads("StridesTensor", "StridesTensorList"), REFUSED),
    Untaken(("assign_value",), "another type than bool, int32, int64, float16 and float32",
            _has_type("BOOL", "INT32", "INT64", "FLOAT16", "FLOAT"), REFUSED),
    Untaken(("fill_constant",), "another type than bool, int32, int64 and numbers of floating point",
            _has_type("BOOL", "INT32", "INT64", "FLOAT16", "FLOAT", "DOUBLE"), REFUSED),
    Untaken(POOLS, "adaptive windows of another size than 1", _has_windows, WRONG),
    Untaken(("pool2d",), "a padding_algorithm other than EXPLICIT",
            lambda call, to: _is_explicit(call) and call.get("padding_algorithm") in ("SAME", "VALID"), WRONG),
    Untaken(("dropout",), "downgrade_in_infer while it trains",
            lambda call, to: call.get("dropout_implementation") == "downgrade_in_infer" and not call.get("is_test"),
            WRONG),
    Untaken(("softmax_with_cross_entropy",), "soft labels", _has("soft_label", True), WRONG),
    Untaken(PRODUCTS, f"a turned operand of more than {MOST_DIMENSIONS} dimensions", _turns_many, WRONG),
    Untaken(("affine_channel",), "another layout than NCHW", _is_other("data_layout", *IMAGES), WRONG),
    Untaken(("kldiv_loss",), "the reduction batchmean", _has("reduction", "batchmean"), WRONG),
    Untaken(("gather",), "an axis other than 0", _is_other("axis", 0), UNREAD),
    Untaken(("softplus",), "a beta other than 1", _is_other("beta", 1.0), UNREAD),
    Untaken(("softmax_with_cross_entropy",), "probabilities instead of scores", _has("use_softmax", False), UNREAD),
    Untaken(CONVOLUTIONS, "the padding_algorithm SAME", _has("padding_algorithm", "SAME"), UNREAD),
    Untaken((*CONVOLUTIONS, "pool2d"), "a bottom padding that is not its left one", _pads_otherwise, UNREAD),
    Untaken(("pool2d",), "a mean that counts its padding", _counts_padding, UNREAD),
    Untaken(("arg_max", "arg_min", "cumsum"), "no axis", _has_dimensions("flatten"), UNREAD),
    Untaken(("p_norm",), "no axis", _has_dimensions("asvector"), UNREAD),
    Untaken(("linear_interp_v2", "bilinear_interp_v2", "trilinear_interp_v2"), "the align_mode 1", _is_between, UNREAD),
    Untaken(("batch_norm",), "statistics that training does not change",
            lambda call, to: bool(call.get("use_global_stats")) and not call.get("is_test"), UNREAD),
    Untaken(NORMS, "no scale or no bias", _lacks("Scale", "Bias"), UNREAD),
)  # fmt: skip
"""What is not taken."""
