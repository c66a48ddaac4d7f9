"""Convolution and pooling; a framework pads before it convolves where its convolution takes no such padding."""

from __future__ import annotations

from ipu_conformance.errors import Inexpressible
from ipu_conformance.ops.row import TABLE, Row, channels_first, channels_last
from ipu_conformance.oracle.ops.layers.window import window


def _sides(size, kernel, padding, **geometry):
    """The padding as pairs; "SAME" is resolved, because only TensorFlow knows it with strides."""
    return window(tuple(size), tuple(kernel), padding=padding, **geometry).padding


def _flat(pairs):
    return [value for pair in pairs for value in pair]


def _cropped(y, pairs, first):
    """``y`` without ``pairs`` of elements on the axes from ``first`` on."""
    sizes = y.shape[first:]
    cut = tuple(slice(low, int(n) - high) for n, (low, high) in zip(sizes, pairs))
    return y[(slice(None),) * first + cut]


def _torch_conv(torch, x, w, *bias, padding, **geometry):
    pairs = _sides(x.shape[2:], w.shape[2:], padding, stride=geometry["stride"], dilation=geometry["dilation"])
    function = getattr(torch.nn.functional, f"conv{x.ndim - 2}d")
    if all(low == high for low, high in pairs):
        return function(x, w, *bias, padding=[low for low, _ in pairs], **geometry)
    return function(torch.nn.functional.pad(x, _flat(reversed(pairs))), w, *bias, **geometry)


def _torch_conv_transpose(torch, x, w, *bias, padding, **geometry):
    y = getattr(torch.nn.functional, f"conv_transpose{x.ndim - 2}d")(x, w, *bias, **geometry)
    return _cropped(y, padding, 2)


def _padded(paddle, x, pairs):
    """Zeros around an image; handlers of an IPU build take no padding that differs between the sides."""
    return paddle.nn.functional.pad(x, _flat(pairs[::-1]), data_format=("NCL", "NCHW", "NCDHW")[len(pairs) - 1])


def _paddle_conv(paddle, x, w, *bias, padding, **geometry):
    pairs = _sides(x.shape[2:], w.shape[2:], padding, stride=geometry["stride"], dilation=geometry["dilation"])
    if any(low != high for low, high in pairs):
        x, pairs = _padded(paddle, x, pairs), [(0, 0)] * len(pairs)
    return getattr(paddle.nn.functional, f"conv{x.ndim - 2}d")(x, w, *bias, padding=_flat(pairs), **geometry)


def _paddle_conv_transpose(paddle, x, w, *bias, padding, **geometry):
    function = getattr(paddle.nn.functional, f"conv{x.ndim - 2}d_transpose")
    return function(x, w, *bias, padding=_flat(padding), **geometry)


def _grouped(tf, groups, x, w, convolve):
    """``convolve`` on each group of channels (last axis of x) and kernels (first axis of w), side by side."""
    if groups == 1:
        return convolve(x, w)
    return tf.concat([convolve(*parts) for parts in zip(tf.split(x, groups, -1), tf.split(w, groups, 0))], -1)


def _tf_conv(tf, x, w, *bias, stride, padding, dilation, groups):
    if max(stride) > 1 and max(dilation) > 1:
        raise Inexpressible("TensorFlow convolves with stride or dilation, not both")
    kernel_last = (*range(2, w.ndim), 1, 0)
    layout, pad = ("NWC", "NHWC", "NDHWC")[len(stride) - 1], padding  # the gradient needs the layout
    x = channels_last(tf, x)
    if padding not in ("SAME", "VALID"):
        x, pad = tf.pad(x, ((0, 0), *padding, (0, 0))), "VALID"

    def convolve(part, kernel):
        kernel = tf.transpose(kernel, kernel_last)
        return tf.nn.convolution(part, kernel, stride, pad, data_format=layout, dilations=dilation)

    y = _grouped(tf, groups, x, w, convolve)
    return channels_first(tf, tf.nn.bias_add(y, *bias) if bias else y)


def _tf_conv_transpose(tf, x, w, *bias, stride, padding, output_padding, dilation, groups):
    if max(dilation) > 1:
        raise Inexpressible("TensorFlow on a CPU has no dilated transposed convolution")
    kernel_last = (*range(2, w.ndim), 1, 0)
    size = [(n - 1) * s + k + more for n, s, k, more in zip(x.shape[2:], stride, w.shape[2:], output_padding)]
    shape = [x.shape[0], *size, w.shape[1]]

    def convolve(part, kernel):
        return tf.nn.conv_transpose(part, tf.transpose(kernel, kernel_last), shape, stride, "VALID")

    y = _cropped(_grouped(tf, groups, channels_last(tf, x), w, convolve), padding, 1)
    return channels_first(tf, tf.nn.bias_add(y, *bias) if bias else y)


TABLE.add(
    Row("conv", _torch_conv, _tf_conv, _paddle_conv),
    Row("conv_transpose", _torch_conv_transpose, _tf_conv_transpose, _paddle_conv_transpose),
)


# Pooling: each framework takes the border rules that it can express.


def _symmetric(x, kernel, stride, padding, dilation=1):
    pairs = _sides(x.shape[2:], kernel, padding, stride=stride, dilation=dilation)
    if any(low != high for low, high in pairs) or any(2 * low > k for (low, _), k in zip(pairs, kernel)):
        raise Inexpressible("the padding must be the same on both sides and at most half the kernel")
    return [low for low, _ in pairs]


def _pool(module, kind, x):
    return getattr(module.nn.functional, f"{kind}_pool{x.ndim - 2}d")


def _torch_max(torch, x, *, kernel, stride, padding, ceil_mode, dilation=1):
    pad = _symmetric(x, kernel, stride, padding, dilation)
    return _pool(torch, "max", x)(x, kernel, stride, pad, dilation, ceil_mode)


def _torch_avg(torch, x, *, kernel, stride, padding, ceil_mode, count_include_pad):
    pad = _symmetric(x, kernel, stride, padding)
    return _pool(torch, "avg", x)(x, kernel, stride, pad, ceil_mode, count_include_pad)


def _paddle_max(paddle, x, *, kernel, stride, padding, ceil_mode, dilation=(1,)):
    if max(dilation) > 1:
        raise Inexpressible("Paddle's pooling has no dilation")
    pad = _symmetric(x, kernel, stride, padding)
    last = (-(-(n + 2 * p - k) // s) * s - p for n, k, s, p in zip(x.shape[2:], kernel, stride, pad))
    if ceil_mode and any(start >= n for start, n in zip(last, x.shape[2:])):
        raise Inexpressible("Paddle keeps windows that start beyond the input")
    return _pool(paddle, "max", x)(x, list(kernel), list(stride), pad, ceil_mode=ceil_mode)


def _paddle_avg(paddle, x, *, kernel, stride, padding, ceil_mode, count_include_pad):
    pad = _symmetric(x, kernel, stride, padding)
    if ceil_mode:
        raise Inexpressible("Paddle's mean keeps windows that start beyond the input, and divides by what is left")
    if count_include_pad and any(pad):
        x, pad = _padded(paddle, x, [(width, width) for width in pad]), [0] * len(pad)
    return _pool(paddle, "avg", x)(x, list(kernel), list(stride), pad)


def _tf_pool(kind):
    def ask(tf, x, *, kernel, stride, padding, ceil_mode, dilation=(1,), count_include_pad=None):
        pairs = _sides(x.shape[2:], kernel, padding, stride=stride, dilation=dilation * (len(kernel) // len(dilation)))
        padded, pad = any(_flat(pairs)), "SAME" if padding == "SAME" else "VALID"
        if ceil_mode or (pad == "VALID" and padded) or (padded and count_include_pad):
            raise Inexpressible("TensorFlow pools with SAME and VALID borders, and no padding counts")
        if any(s > k for s, k in zip(stride, kernel)):
            raise Inexpressible("TensorFlow's pooling on a CPU skips no element")
        if max(dilation) > 1 and (pad == "SAME" or max(stride) > 1):
            raise Inexpressible("TensorFlow pools with stride or dilation, not both")
        dilations = dilation if max(dilation) > 1 else None
        return channels_first(tf, tf.nn.pool(channels_last(tf, x), kernel, kind, stride, pad, dilations=dilations))

    return ask


def _torch_adaptive(kind):
    def ask(torch, x, *, output_size=None):
        return _pool(torch, f"adaptive_{kind}", x)(x, output_size or [1] * (x.ndim - 2))

    return ask


def _paddle_adaptive(kind):
    """Paddle takes a number for one axis; a handler of an IPU build takes the size 1, and equal windows are a pool."""

    def ask(paddle, x, *, output_size=None):
        size = output_size or [1] * (x.ndim - 2)
        if any(n % m for n, m in zip(x.shape[2:], size)):
            raise Inexpressible("an IPU build has no handler for windows that are not all of one size")
        if kind == "max" and len(size) == 3:
            raise Inexpressible("an IPU build has no handler for max_pool3d_with_index")
        if any(m != 1 for m in size):
            kernel = [n // m for n, m in zip(x.shape[2:], size)]
            return _pool(paddle, kind, x)(x, kernel, kernel)
        return _pool(paddle, f"adaptive_{kind}", x)(x, size[0] if len(size) == 1 else list(size))

    return ask


def _tf_adaptive(kind):
    """Bins of equal size are pooled by a reshape and a reduction."""

    def ask(tf, x, *, output_size):
        if any(n % m for n, m in zip(x.shape[2:], output_size)):
            raise Inexpressible("TensorFlow has no adaptive pooling, and the bins are not all of one size")
        parts = _flat((m, n // m) for n, m in zip(x.shape[2:], output_size))
        reduce = tf.reduce_mean if kind == "avg" else tf.reduce_max
        return reduce(tf.reshape(x, [*x.shape[:2], *parts]), list(range(3, 3 + len(parts), 2)))

    return ask


TABLE.add(
    Row("max_pool", _torch_max, _tf_pool("MAX"), _paddle_max),
    Row("avg_pool", _torch_avg, _tf_pool("AVG"), _paddle_avg),
    *(
        Row(f"adaptive_{kind}_pool", _torch_adaptive(kind), _tf_adaptive(kind), _paddle_adaptive(kind))
        for kind in ("avg", "max")
    ),
    Row(
        "global_avg_pool",
        torch=_torch_adaptive("avg"),
        tensorflow=lambda tf, x: tf.reduce_mean(x, list(range(2, x.ndim)), keepdims=True),
        paddle=_paddle_adaptive("avg"),
    ),
    Row(
        "global_max_pool",
        torch=_torch_adaptive("max"),
        tensorflow=lambda tf, x: tf.reduce_max(x, list(range(2, x.ndim)), keepdims=True),
        paddle=_paddle_adaptive("max"),
    ),
)
