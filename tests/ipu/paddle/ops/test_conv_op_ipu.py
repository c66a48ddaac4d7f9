"""Convolutions and transposed ones, with unequal strides, paddings and dilations, and in groups."""

from __future__ import annotations

from typing import Any, Dict

from .op_test_ipu import case, forward_and_gradient, values


def _conv(paddle: Any, x: Any, kernel: Any, *, padding: Any, **geometry: Any) -> Any:
    flat = [size for pair in padding for size in pair]
    return getattr(paddle.nn.functional, f"conv{len(x.shape) - 2}d")(x, kernel, padding=flat, **geometry)


def _transposed(paddle: Any, x: Any, kernel: Any, *, padding: Any, **geometry: Any) -> Any:
    flat = [size for pair in padding for size in pair]
    return paddle.nn.functional.conv2d_transpose(x, kernel, padding=flat, **geometry)


PLAIN: Dict[str, Any] = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}

CASES = (
    case("conv", _conv, values(2, 3, 5, 6), values(4, 3, 2, 3), name="conv2d", **PLAIN),
    case("conv", _conv, values(2, 3, 5, 6), values(4, 3, 2, 3), name="conv2d-strides", **{**PLAIN, "stride": (1, 2)}),
    case("conv", _conv, values(2, 3, 5, 6), values(4, 3, 2, 3), name="conv2d-padding",
         **{**PLAIN, "padding": ((1, 0), (0, 2))}),
    case("conv", _conv, values(2, 3, 7, 6), values(4, 3, 2, 3), name="conv2d-dilation",
         **{**PLAIN, "dilation": (3, 2)}),
    case("conv", _conv, values(2, 6, 4, 5), values(4, 3, 2, 3), name="conv2d-groups", **{**PLAIN, "groups": 2}),
    case("conv", _conv, values(2, 3, 7), values(4, 3, 2), name="conv1d", stride=(2,), padding=((1, 1),), dilation=(1,),
         groups=1),
    case("conv_transpose", _transposed, values(2, 3, 3, 4), values(3, 4, 2, 3), name="conv2d_transpose",
         output_padding=(0, 0), **{**PLAIN, "stride": (2, 1)}),
)  # fmt: skip

test_forward, test_gradient = forward_and_gradient(CASES)
