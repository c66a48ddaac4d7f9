"""Witnesses of convolution; asymmetric padding is made with the library's own pad where its convolution has none."""

from __future__ import annotations

import numpy as np

from ipu_conformance.oracle.ops.layers.window import space, window
from tests.unit.oracle.witnesses.witness import (
    PADDLE,
    SCIPY,
    TENSORFLOW,
    TORCH,
    Unsupported,
    channels_first,
    channels_last,
)


def sides(size, kernel, padding, **geometry):
    """The padding as pairs; "SAME" is resolved, because only TensorFlow knows it with strides."""
    return window(tuple(size), tuple(kernel), padding=padding, **geometry).padding


def _flat(pairs):
    """Pairs in the order of torch's pad: last axis first."""
    return tuple(value for pair in reversed(pairs) for value in pair)


def _cropped(y, pairs, first):
    """``y`` without ``pairs`` of elements on the axes from ``first`` on."""
    sizes = y.shape[first:]
    cut = tuple(slice(low, int(n) - high) for n, (low, high) in zip(sizes, pairs))
    return y[(slice(None),) * first + cut]


@SCIPY.row("conv")
def _scipy_conv(scipy, x, w, bias=None, *, stride, padding, dilation, groups):
    pairs = sides(x.shape[2:], w.shape[2:], padding, stride=stride, dilation=dilation)
    x = np.pad(x, ((0, 0), (0, 0), *pairs))
    reach = tuple(d * (k - 1) + 1 for k, d in zip(w.shape[2:], dilation))
    spread = np.zeros(w.shape[:2] + reach, w.dtype)
    spread[space([slice(None, None, d) for d in dilation])] = w
    steps = tuple(slice(None, None, s) for s in stride)
    inner, outer = w.shape[1], w.shape[0] // groups

    def channel(image, out):
        first = out // outer * inner
        return scipy.signal.correlate(image[first : first + inner], spread[out], "valid", method="direct")[0][steps]

    y = np.stack([[channel(image, out) for out in range(len(w))] for image in x])
    return y if bias is None else y + bias.reshape((-1,) + (1,) * len(stride))


@TORCH.row("conv")
def _torch_conv(torch, x, w, *bias, padding, **geometry):
    pairs = sides(x.shape[2:], w.shape[2:], padding, stride=geometry["stride"], dilation=geometry["dilation"])
    x = torch.nn.functional.pad(x, _flat(pairs))
    return getattr(torch.nn.functional, f"conv{x.ndim - 2}d")(x, w, *bias, **geometry)


@TORCH.row("conv_transpose")
def _torch_conv_transpose(torch, x, w, *bias, padding, **geometry):
    y = getattr(torch.nn.functional, f"conv_transpose{x.ndim - 2}d")(x, w, *bias, **geometry)
    return _cropped(y, padding, 2)


@PADDLE.row("conv")
def _paddle_conv(paddle, x, w, *bias, padding, **geometry):
    pairs = sides(x.shape[2:], w.shape[2:], padding, stride=geometry["stride"], dilation=geometry["dilation"])
    function = getattr(paddle.nn.functional, f"conv{x.ndim - 2}d")
    return function(x, w, *bias, padding=[value for pair in pairs for value in pair], **geometry)


@PADDLE.row("conv_transpose")
def _paddle_conv_transpose(paddle, x, w, *bias, padding, **geometry):
    function = getattr(paddle.nn.functional, f"conv{x.ndim - 2}d_transpose")
    return function(x, w, *bias, padding=[value for pair in padding for value in pair], **geometry)


def _grouped(tf, groups, x, w, call):
    """``call`` on each group of channels (last axis of x) and kernels (first axis of w), side by side."""
    return tf.concat([call(*parts) for parts in zip(tf.split(x, groups, -1), tf.split(w, groups, 0))], -1)


@TENSORFLOW.row("conv")
def _tf_conv(tf, x, w, *bias, stride, padding, dilation, groups):
    if len(stride) == 3 or (max(stride) > 1 and max(dilation) > 1):
        raise Unsupported("TensorFlow on a CPU takes stride or dilation, and float64 in at most two axes")
    kernel_last = (*range(2, w.ndim), 1, 0)
    pad = padding
    x = channels_last(tf, x)
    if padding != "SAME":
        x, pad = tf.pad(x, ((0, 0), *padding, (0, 0))), "VALID"

    def call(part, kernel):
        return tf.nn.convolution(part, tf.transpose(kernel, kernel_last), stride, pad, dilations=dilation)

    y = _grouped(tf, groups, x, w, call)
    return channels_first(tf, tf.nn.bias_add(y, *bias) if bias else y)


@TENSORFLOW.row("conv_transpose")
def _tf_conv_transpose(tf, x, w, *bias, stride, padding, output_padding, dilation, groups):
    if len(stride) == 3 or max(dilation) > 1:
        raise Unsupported("TensorFlow on a CPU has no dilated transposed convolution, and float64 in at most two axes")
    kernel_last = (*range(2, w.ndim), 1, 0)
    size = [(n - 1) * s + k + more for n, s, k, more in zip(x.shape[2:], stride, w.shape[2:], output_padding)]
    shape = [x.shape[0], *size, w.shape[1]]

    def call(part, kernel):
        return tf.nn.conv_transpose(part, tf.transpose(kernel, kernel_last), shape, stride, "VALID")

    y = _cropped(_grouped(tf, groups, channels_last(tf, x), w, call), padding, 1)
    return channels_first(tf, tf.nn.bias_add(y, *bias) if bias else y)
