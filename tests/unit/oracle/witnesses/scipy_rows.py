"""SciPy's rows: a row is ``row(scipy, *inputs, **attributes)`` on NumPy arrays."""

from __future__ import annotations

import numpy as np

from ipu_conformance.ops import Inexpressible
from ipu_conformance.ops.row import call
from ipu_conformance.oracle.ops.layers.window import space, window
from tests.unit.oracle.witnesses.witness import SCIPY


def _filtered(scipy, x, axis, exclusive, reverse):
    """A recursive filter with one pole at 1 sums up."""
    turned = x.swapaxes(axis, -1)[..., :: -1 if reverse else 1]
    numerator = [0.0, 1.0] if exclusive else [1.0]
    total = scipy.signal.lfilter(numerator, [1.0, -1.0], turned, axis=-1).astype(x.dtype)
    return total[..., :: -1 if reverse else 1].swapaxes(axis, -1)


SCIPY.add({name: call(f"special.{name}") for name in ("erf", "expm1", "log1p", "logsumexp", "softmax", "log_softmax")})
SCIPY.add(
    {
        "gelu": lambda scipy, x: x * scipy.special.ndtr(x),
        "log_sigmoid": call("special.log_expit"),
        "sigmoid": call("special.expit"),
        "silu": lambda scipy, x: x * scipy.special.expit(x),
        "cumsum": _filtered,
    }
)


@SCIPY.row("log_cosh_loss")
def _log_cosh(scipy, x, target, *, reduction):
    loss = scipy.special.logsumexp(np.stack([x - target, target - x]), axis=0) - np.log(np.asarray(2.0, x.dtype))
    return {"none": loss, "sum": loss.sum(), "mean": loss.mean()}[reduction]


@SCIPY.row("conv")
def _scipy_conv(scipy, x, w, bias=None, *, stride, padding, dilation, groups):
    pairs = window(x.shape[2:], w.shape[2:], stride, padding, dilation).padding
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


@SCIPY.row("global_max_pool", "max_pool")
def _scipy_max(scipy, x, **geometry):
    """The running maximum, read off at the places where windows are centred."""
    if not geometry:
        running = scipy.ndimage.maximum_filter(x, (1, 1, *x.shape[2:]), mode="constant", cval=-np.inf)
        return running[space([slice(n // 2, n // 2 + 1) for n in x.shape[2:]])]
    kernel, stride = geometry["kernel"], geometry["stride"]
    pairs = window(x.shape[2:], kernel, stride, geometry["padding"], geometry.get("dilation", 1)).padding
    if geometry["ceil_mode"] or max(geometry.get("dilation", (1,))) > 1:
        raise Inexpressible("the running maximum has neither dilation nor partial windows")
    padded = np.pad(x, ((0, 0), (0, 0), *pairs), constant_values=-np.inf)
    running = scipy.ndimage.maximum_filter(padded, (1, 1, *kernel), mode="constant", cval=-np.inf)
    centres = [slice(k // 2, n - (k - 1 - k // 2), s) for k, n, s in zip(kernel, padded.shape[2:], stride)]
    return running[space(centres)]


@SCIPY.row("masked_select")
def _masked_select(scipy, x, mask):
    """NumPy's own selection, which no framework's device has: its shape depends on values."""
    return x[mask]
