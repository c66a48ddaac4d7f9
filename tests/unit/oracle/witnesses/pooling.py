"""Witnesses of pooling; each library takes the border rules that it can express."""

from __future__ import annotations

import numpy as np

from ipu_conformance.oracle.ops.layers.window import space
from tests.unit.oracle.witnesses.convolution import sides
from tests.unit.oracle.witnesses.witness import (
    PADDLE,
    SCIPY,
    TENSORFLOW,
    TORCH,
    Unsupported,
    channels_first,
    channels_last,
)


def _symmetric(x, kernel, stride, padding, dilation=1):
    pairs = sides(x.shape[2:], kernel, padding, stride=stride, dilation=dilation)
    if any(low != high for low, high in pairs) or any(2 * low > k for (low, _), k in zip(pairs, kernel)):
        raise Unsupported("the padding must be the same on both sides and at most half the kernel")
    return [low for low, _ in pairs]


def _function(module, kind, x):
    return getattr(module.nn.functional, f"{kind}_pool{x.ndim - 2}d")


@TORCH.row("max_pool")
def _torch_max(torch, x, *, kernel, stride, padding, ceil_mode, dilation=1):
    pad = _symmetric(x, kernel, stride, padding, dilation)
    return _function(torch, "max", x)(x, kernel, stride, pad, dilation, ceil_mode)


@TORCH.row("avg_pool")
def _torch_avg(torch, x, *, kernel, stride, padding, ceil_mode, count_include_pad):
    pad = _symmetric(x, kernel, stride, padding)
    return _function(torch, "avg", x)(x, kernel, stride, pad, ceil_mode, count_include_pad)


@PADDLE.row("max_pool")
def _paddle_max(paddle, x, *, kernel, stride, padding, ceil_mode, dilation=None):
    if dilation is not None and max(dilation) > 1:
        raise Unsupported("Paddle's pooling has no dilation")
    if ceil_mode and len(kernel) == 1:
        raise Unsupported("Paddle keeps windows that start beyond the input")
    pad = _symmetric(x, kernel, stride, padding)
    return _function(paddle, "max", x)(x, list(kernel), list(stride), pad, ceil_mode=ceil_mode)


@PADDLE.row("avg_pool")
def _paddle_avg(paddle, x, *, kernel, stride, padding, ceil_mode, count_include_pad):
    if ceil_mode:
        raise Unsupported("Paddle's mean keeps windows that start beyond the input, and divides by what is left")
    pad = _symmetric(x, kernel, stride, padding)
    return _function(paddle, "avg", x)(
        x, list(kernel), list(stride), pad, exclusive=not count_include_pad, ceil_mode=ceil_mode
    )


def _tf_pool(kind):
    def row(tf, x, *, kernel, stride, padding, ceil_mode, dilation=None, count_include_pad=None):
        pairs = sides(x.shape[2:], kernel, padding, stride=stride, dilation=dilation or 1, ceil_mode=ceil_mode)
        pad = "SAME" if padding == "SAME" else "VALID"
        if len(kernel) == 3 or any(s > k for s, k in zip(stride, kernel)):
            raise Unsupported("TensorFlow on a CPU pools float64 in at most two axes, and skips no element")
        if ceil_mode or (pad == "VALID" and np.any(pairs)) or (np.any(pairs) and count_include_pad):
            raise Unsupported("TensorFlow pools with SAME and VALID borders, and no padding counts")
        if dilation is not None and max(dilation) > 1 and (pad == "SAME" or max(stride) > 1):
            raise Unsupported("TensorFlow pools with stride or dilation, not both")
        return channels_first(tf, tf.nn.pool(channels_last(tf, x), kernel, kind, stride, pad, dilations=dilation))

    return row


TENSORFLOW.add({"max_pool": _tf_pool("MAX"), "avg_pool": _tf_pool("AVG")})


def _adaptive(library, kind):
    def row(module, x, *, output_size=None):
        rank = x.ndim - 2
        size = [1] * rank if output_size is None else list(output_size)
        return _function(module, f"adaptive_{kind}", x)(x, size[0] if library == "paddle" and rank == 1 else size)

    return row


for _kind in ("avg", "max"):
    for _name in (f"adaptive_{_kind}_pool", f"global_{_kind}_pool"):
        TORCH.add({_name: _adaptive("torch", _kind)})
        PADDLE.add({_name: _adaptive("paddle", _kind)})


PADDLE.except_for(
    "avg_pool adaptive_avg_pool global_avg_pool", "gradients", "float64", "it takes a window's share in float32"
)


def _space(x):
    return list(range(2, x.ndim))


TENSORFLOW.add(
    {
        "global_avg_pool": lambda tf, x: tf.reduce_mean(x, _space(x), keepdims=True),
        "global_max_pool": lambda tf, x: tf.reduce_max(x, _space(x), keepdims=True),
    }
)


@SCIPY.row("global_max_pool", "max_pool")
def _scipy_max(scipy, x, **geometry):
    """The running maximum, read off at the places where windows are centred."""
    if not geometry:
        running = scipy.ndimage.maximum_filter(x, (1, 1, *x.shape[2:]), mode="constant", cval=-np.inf)
        return running[space([slice(n // 2, n // 2 + 1) for n in x.shape[2:]])]
    kernel, stride = geometry["kernel"], geometry["stride"]
    pairs = sides(x.shape[2:], kernel, geometry["padding"], stride=stride, dilation=geometry.get("dilation", 1))
    if geometry["ceil_mode"] or max(geometry.get("dilation", (1,))) > 1:
        raise Unsupported("the running maximum has neither dilation nor partial windows")
    padded = np.pad(x, ((0, 0), (0, 0), *pairs), constant_values=-np.inf)
    running = scipy.ndimage.maximum_filter(padded, (1, 1, *kernel), mode="constant", cval=-np.inf)
    centres = [slice(k // 2, n - (k - 1 - k // 2), s) for k, n, s in zip(kernel, padded.shape[2:], stride)]
    return running[space(centres)]
