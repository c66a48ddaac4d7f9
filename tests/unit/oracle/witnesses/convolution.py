"""Witnesses of convolution; asymmetric padding is made with the library's own pad where its convolution has none."""

from __future__ import annotations

from typing import Any, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle.ops.window import Padding, space, window
from tests.unit.oracle.witnesses.witness import PADDLE, SCIPY, TENSORFLOW, TORCH, Unsupported


def sides(size: Sequence[int], kernel: Sequence[int], padding: Padding, **geometry: Any) -> Tuple[Tuple[int, int], ...]:
    """The padding as pairs; "SAME" is resolved, because only TensorFlow knows it with strides."""
    return window(tuple(size), tuple(kernel), padding=padding, **geometry).padding


def _flat(pairs: Sequence[Tuple[int, int]]) -> Tuple[int, ...]:
    """Pairs in the order of torch's pad: last axis first."""
    return tuple(value for pair in reversed(pairs) for value in pair)


def _cropped(y: Any, pairs: Sequence[Tuple[int, int]], first: int) -> Any:
    """``y`` without ``pairs`` of elements on the axes from ``first`` on."""
    sizes = y.shape[first:]
    cut = tuple(slice(low, int(n) - high) for n, (low, high) in zip(sizes, pairs))
    return y[(slice(None),) * first + cut]


@SCIPY.row("conv")
def _scipy_conv(
    scipy: Any, x: Any, w: Any, bias: Any = None, *, stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    pairs = sides(x.shape[2:], w.shape[2:], padding, stride=stride, dilation=dilation)
    x = np.pad(x, ((0, 0), (0, 0), *pairs))
    reach = tuple(d * (k - 1) + 1 for k, d in zip(w.shape[2:], dilation))
    spread = np.zeros(w.shape[:2] + reach, w.dtype)
    spread[space([slice(None, None, d) for d in dilation])] = w
    steps = tuple(slice(None, None, s) for s in stride)
    inner, outer = w.shape[1], w.shape[0] // groups

    def channel(image: Any, out: int) -> Any:
        first = out // outer * inner
        return scipy.signal.correlate(image[first : first + inner], spread[out], "valid", method="direct")[0][steps]

    y = np.stack([[channel(image, out) for out in range(len(w))] for image in x])
    return y if bias is None else y + bias.reshape((-1,) + (1,) * len(stride))


@TORCH.row("conv")
def _torch_conv(torch: Any, x: Any, w: Any, *bias: Any, padding: Any, **geometry: Any) -> Any:
    pairs = sides(x.shape[2:], w.shape[2:], padding, stride=geometry["stride"], dilation=geometry["dilation"])
    x = torch.nn.functional.pad(x, _flat(pairs))
    return getattr(torch.nn.functional, f"conv{x.ndim - 2}d")(x, w, *bias, **geometry)


@TORCH.row("conv_transpose")
def _torch_conv_transpose(torch: Any, x: Any, w: Any, *bias: Any, padding: Any, **geometry: Any) -> Any:
    y = getattr(torch.nn.functional, f"conv_transpose{x.ndim - 2}d")(x, w, *bias, **geometry)
    return _cropped(y, padding, 2)


@PADDLE.row("conv")
def _paddle_conv(paddle: Any, x: Any, w: Any, *bias: Any, padding: Any, **geometry: Any) -> Any:
    pairs = sides(x.shape[2:], w.shape[2:], padding, stride=geometry["stride"], dilation=geometry["dilation"])
    function = getattr(paddle.nn.functional, f"conv{x.ndim - 2}d")
    return function(x, w, *bias, padding=[value for pair in pairs for value in pair], **geometry)


@PADDLE.row("conv_transpose")
def _paddle_conv_transpose(paddle: Any, x: Any, w: Any, *bias: Any, padding: Any, **geometry: Any) -> Any:
    function = getattr(paddle.nn.functional, f"conv{x.ndim - 2}d_transpose")
    return function(x, w, *bias, padding=[value for pair in padding for value in pair], **geometry)


def _channels_last(tf: Any, x: Any) -> Any:
    return tf.transpose(x, (0, *range(2, x.ndim), 1))


def _channels_first(tf: Any, y: Any) -> Any:
    return tf.transpose(y, (0, y.ndim - 1, *range(1, y.ndim - 1)))


def _grouped(tf: Any, groups: int, x: Any, w: Any, call: Any) -> Any:
    """``call`` on each group of channels (last axis of x) and kernels (first axis of w), side by side."""
    return tf.concat([call(*parts) for parts in zip(tf.split(x, groups, -1), tf.split(w, groups, 0))], -1)


@TENSORFLOW.row("conv")
def _tf_conv(tf: Any, x: Any, w: Any, *bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    if len(stride) == 3 or (max(stride) > 1 and max(dilation) > 1):
        raise Unsupported("TensorFlow on a CPU takes stride or dilation, and float64 in at most two axes")
    kernel_last = (*range(2, w.ndim), 1, 0)
    pad = padding
    x = _channels_last(tf, x)
    if padding != "SAME":
        x, pad = tf.pad(x, ((0, 0), *padding, (0, 0))), "VALID"

    def call(part: Any, kernel: Any) -> Any:
        return tf.nn.convolution(part, tf.transpose(kernel, kernel_last), stride, pad, dilations=dilation)

    y = _grouped(tf, groups, x, w, call)
    return _channels_first(tf, tf.nn.bias_add(y, *bias) if bias else y)


@TENSORFLOW.row("conv_transpose")
def _tf_conv_transpose(
    tf: Any,
    x: Any,
    w: Any,
    *bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    dilation: Any,
    groups: int,
) -> Any:
    if len(stride) == 3 or max(dilation) > 1:
        raise Unsupported("TensorFlow on a CPU has no dilated transposed convolution, and float64 in at most two axes")
    kernel_last = (*range(2, w.ndim), 1, 0)
    size = [(n - 1) * s + k + more for n, s, k, more in zip(x.shape[2:], stride, w.shape[2:], output_padding)]
    shape = [x.shape[0], *size, w.shape[1]]

    def call(part: Any, kernel: Any) -> Any:
        return tf.nn.conv_transpose(part, tf.transpose(kernel, kernel_last), shape, stride, "VALID")

    y = _cropped(_grouped(tf, groups, _channels_last(tf, x), w, call), padding, 1)
    return _channels_first(tf, tf.nn.bias_add(y, *bias) if bias else y)
