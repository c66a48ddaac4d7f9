"""Convolution and its transpose in any number of spatial axes, with stride, padding, dilation and groups.

Both are built from windows: a convolution multiplies every window by the kernel, and the transposed convolution is
the gradient of a convolution with respect to its input.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle.op import OPS, Array, Op, OracleError, multilinear, multilinear_vjp
from ipu_conformance.oracle.ops.layers.window import Padding, PerAxis, Window, per_axis, window
from ipu_conformance.oracle.sample import Chooser, Sample


def _view(x: Array, weight: Array, stride: PerAxis = 1, padding: Padding = 0, dilation: PerAxis = 1) -> Window:
    """The windows of a convolution."""
    return window(x.shape[2:], weight.shape[2:], stride, padding, dilation)


def conv(x: Array, weight: Array, bias: Optional[Array] = None, *, groups: int = 1, **geometry: Any) -> Array:
    """Cross-correlation of x (batch, in, *space) with weight (out, in / groups, *kernel), plus a bias per channel.

    Attributes: stride (1), padding (0), dilation (1), as ``window`` has them, and groups.
    """
    if x.shape[1] != groups * weight.shape[1] or weight.shape[0] % groups:
        raise OracleError(
            f"a weight of shape {weight.shape} in {groups} groups does not fit {x.shape[1]} channels; "
            "it takes (out, channels / groups, *kernel) with out a multiple of the groups"
        )
    view = _view(x, weight, **geometry)
    y = _kernel_rows(weight, groups) @ _columns(view, x, groups)
    return _with_bias(y.reshape((len(x), len(weight), *view.places)), bias)


def conv_vjp(
    g: Array, x: Array, weight: Array, bias: Optional[Array] = None, *, groups: int = 1, **geometry: Any
) -> Sequence[Array]:
    """The gradients of x (windows folded back), of the weight (g times windows) and of the bias (g summed)."""
    view = _view(x, weight, **geometry)
    gradients = [_back(view, g, weight, groups), _weight_gradient(view, g, x, weight, groups)]
    return gradients if bias is None else [*gradients, _bias_gradient(g)]


def conv_transpose(x: Array, weight: Array, bias: Optional[Array] = None, *, groups: int = 1, **geometry: Any) -> Array:
    """Every element of x adds a scaled weight (in, out / groups, *kernel) to the output, ``stride`` apart.

    Attributes as for ``conv``: ``padding`` is cut off the output, ``output_padding`` (0) makes it longer at the end.
    """
    return _with_bias(_back(_transposed_view(x, weight, **geometry), x, weight, groups), bias)


def conv_transpose_vjp(
    g: Array, x: Array, weight: Array, bias: Optional[Array] = None, *, groups: int = 1, **geometry: Any
) -> Sequence[Array]:
    """The gradients: x gets the convolution of g, the weight that convolution's weight gradient."""
    view = _transposed_view(x, weight, **geometry)
    dx = _kernel_rows(weight, groups) @ _columns(view, g, groups)
    gradients = [dx.reshape(x.shape), _weight_gradient(view, x, g, weight, groups)]
    return gradients if bias is None else [*gradients, _bias_gradient(g)]


def _columns(view: Window, x: Array, groups: int) -> Array:
    """The windows of x as (batch, groups, channels / groups * taps, places)."""
    return view.unfold(x).reshape((len(x), groups, -1, int(np.prod(view.places))))


def _kernel_rows(weight: Array, groups: int) -> Array:
    """The weight as (groups, out / groups, in / groups * taps)."""
    return weight.reshape((groups, len(weight) // groups, -1))


def _back(view: Window, g: Array, weight: Array, groups: int) -> Array:
    """The gradient of a convolution's input."""
    rows = _kernel_rows(weight, groups)
    columns = np.swapaxes(rows, -1, -2) @ g.reshape((len(g), groups, rows.shape[1], -1))
    return view.fold(columns.reshape((len(g), groups * weight.shape[1], -1, *view.places)))


def _weight_gradient(view: Window, g: Array, x: Array, weight: Array, groups: int) -> Array:
    """The gradient of a convolution's weight."""
    flat = g.reshape((len(g), groups, len(weight) // groups, -1))
    return np.sum(flat @ np.swapaxes(_columns(view, x, groups), -1, -2), axis=0).reshape(weight.shape)


def _with_bias(y: Array, bias: Optional[Array]) -> Array:
    return y if bias is None else y + bias.reshape((1, -1) + (1,) * (y.ndim - 2))


def _bias_gradient(g: Array) -> Array:
    return g.sum(axis=(0, *range(2, g.ndim)))


def _transposed_view(
    x: Array,
    weight: Array,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    output_padding: PerAxis = 0,
) -> Window:
    """The windows of the convolution whose input gradient the transposed convolution is."""
    rank = x.ndim - 2
    if isinstance(padding, str):
        raise OracleError(f"padding {padding!r} is not defined for a transposed convolution; use numbers")
    sides = window((10**9,) * rank, weight.shape[2:], 1, padding).padding
    extra, steps = per_axis(output_padding, rank), per_axis(stride, rank)
    if any(more >= step for more, step in zip(extra, steps)):
        raise OracleError(f"output_padding {extra} must be smaller than the stride {steps} on every axis")
    reach = (d * (k - 1) + 1 for d, k in zip(per_axis(dilation, rank), weight.shape[2:]))
    size = tuple(
        (n - 1) * step - low - high + span + more
        for n, step, (low, high), span, more in zip(x.shape[2:], steps, sides, reach, extra)
    )
    return window(size, weight.shape[2:], stride, sides, dilation)


def _draw_geometry(chooser: Chooser) -> Any:
    """A kernel, stride, padding and dilation for each of one to three spatial axes."""
    rank = chooser.choice((2, 1, 2, 1, 3))
    widest_stride, widest_dilation = chooser.choice(((3, 1), (1, 2), (3, 2)))  # not every library takes both at once
    axes = [
        {
            "kernel": chooser.integer(1, 3),
            "stride": chooser.integer(1, widest_stride),
            "padding": (chooser.integer(0, 2), chooser.integer(0, 2)),
            "dilation": chooser.integer(1, widest_dilation),
        }
        for _ in range(rank)
    ]
    return {key: tuple(axis[key] for axis in axes) for key in axes[0]}


def _draw_weights(chooser: Chooser, first: int, second: int, kernel: Sequence[int], bias: int) -> Tuple[Array, ...]:
    weight = chooser.array((first, second, *kernel))
    return (weight, chooser.array((bias,))) if chooser.boolean() else (weight,)


def _draw_conv(chooser: Chooser) -> Sample:
    geometry = _draw_geometry(chooser)
    kernel = geometry.pop("kernel")
    groups, inner, outer = chooser.integer(1, 3), chooser.integer(1, 2), chooser.integer(1, 2)
    size = tuple(d * (k - 1) + chooser.integer(1, 4) for k, d in zip(kernel, geometry["dilation"]))
    if chooser.integer(0, 3) == 3:
        geometry["padding"] = "SAME"
    x = chooser.array((chooser.integer(1, 3), groups * inner, *size))
    rest = _draw_weights(chooser, groups * outer, inner, kernel, groups * outer)
    return Sample((x, *rest), {**geometry, "groups": groups})


def _draw_conv_transpose(chooser: Chooser) -> Sample:
    geometry = _draw_geometry(chooser)
    kernel = geometry.pop("kernel")
    groups, inner, outer = chooser.integer(1, 3), chooser.integer(1, 2), chooser.integer(1, 2)
    geometry["output_padding"] = tuple(chooser.integer(0, s - 1) for s in geometry["stride"])
    # The output keeps at least one element: padding never cuts more than the kernel reaches.
    geometry["padding"] = tuple(
        (min(low, d * (k - 1) // 2), min(high, d * (k - 1) // 2))
        for (low, high), k, d in zip(geometry["padding"], kernel, geometry["dilation"])
    )
    x = chooser.array((chooser.integer(1, 2), groups * inner, *(chooser.integer(1, 3) for _ in kernel)))
    rest = _draw_weights(chooser, groups * inner, outer, kernel, groups * outer)
    return Sample((x, *rest), {**geometry, "groups": groups})


for _name, _forward, _vjp, _draw in (
    ("conv", conv, conv_vjp, _draw_conv),
    ("conv_transpose", conv_transpose, conv_transpose_vjp, _draw_conv_transpose),
):
    OPS.add(Op(_name, "convolution", _forward, multilinear(_forward), _draw, _vjp, multilinear_vjp(_vjp)))
