"""Reductions and running sums."""

from __future__ import annotations

import math

from ipu_conformance.errors import Inexpressible
from ipu_conformance.ops.row import TABLE, Row, call, refusing

_PRODUCT = 6**3
"""The factors of the longest product that is sampled."""


def _axes(x, axis):
    """The reduced axes as a list, all of them for None."""
    return list(range(x.ndim)) if axis is None else list(axis) if isinstance(axis, tuple) else [axis]


def _torch(name):
    """A function that takes all axes only when they are listed."""
    return lambda torch, x, axis, keepdims: getattr(torch, name)(x, _axes(x, axis), keepdim=keepdims)


def _torch_prod(torch, x, axis, keepdims):
    for a in sorted(_axes(x, axis), reverse=True):
        x = torch.prod(x, a, keepdim=keepdims)
    return x


def _torch_extreme(name):
    def ask(torch, x, axis, keepdims, ties="split"):
        if ties == "split":
            return getattr(torch, f"a{name}")(x, _axes(x, axis), keepdims)
        if ties == "first" and isinstance(axis, int):
            return getattr(torch, name)(x, axis, keepdims).values
        raise Inexpressible(f"torch has no {name} over {axis} whose gradient at ties is {ties}")

    return ask


def _torch_spread(name):
    return lambda torch, x, axis, keepdims, correction=0: getattr(torch, name)(
        x, _axes(x, axis), correction=correction, keepdim=keepdims
    )


def _torch_cumsum(torch, x, axis, exclusive, reverse):
    turned = torch.flip(x, [axis]) if reverse else x
    if exclusive:
        first = torch.zeros_like(turned.narrow(axis, 0, 1))
        turned = torch.cat([first, turned.narrow(axis, 0, x.shape[axis] - 1)], axis)
    total = torch.cumsum(turned, axis)
    return torch.flip(total, [axis]) if reverse else total


def _tf_extreme(name):
    return refusing(
        lambda tf, x, axis, keepdims, **_: getattr(tf, f"reduce_{name}")(x, axis, keepdims),
        lambda x, ties="split", **_: ties != "split",
        "TensorFlow splits the gradient at ties",
    )


def _tf_variance(tf, x, axis, keepdims, correction=0):
    variance = tf.math.reduce_variance(x, axis, keepdims)
    count = 1
    for a in _axes(x, axis):
        count *= x.shape[a]
    return variance * (count / (count - correction)) if correction else variance


def _tf_norm(tf, x, axis, keepdims, p):
    """tf.norm takes two axes for a matrix norm, and all of them flattened for None."""
    axes = _axes(x, axis)
    if 1 < len(axes) < x.ndim:
        raise Inexpressible("tf.norm reduces one axis or all")
    y = tf.norm(x, p, axes[0] if len(axes) == 1 else None, keepdims)
    return tf.reshape(y, [1] * x.ndim) if keepdims and len(axes) > 1 else y


def _paddle(name):
    return lambda paddle, x, axis, keepdims: getattr(paddle, name)(x, _listed(axis), keepdim=keepdims)


def _listed(axis):
    return list(axis) if isinstance(axis, tuple) else axis


def _paddle_extreme(name):
    def ask(paddle, x, axis, keepdims, ties="all"):
        by_ties = {"split": f"a{name}", "all": name}
        if ties not in by_ties:
            raise Inexpressible("Paddle never gives the gradient to the first of equal elements only")
        return getattr(paddle, by_ties[ties])(x, _listed(axis), keepdim=keepdims)

    return ask


def _paddle_norm(paddle, x, axis, keepdims, p):
    """paddle.norm takes two axes for a matrix norm; all of them are flattened first."""
    if math.isinf(p):
        raise Inexpressible("an IPU build computes a norm from powers, which are none of an infinite order")
    axes = _axes(x, axis)
    if len(axes) == 1:
        return paddle.norm(x, p, axes[0], keepdims)
    if len(axes) < x.ndim:
        raise Inexpressible("paddle.norm reduces one axis or all")
    y = paddle.norm(paddle.flatten(x), p, 0, keepdims)
    return paddle.reshape(y, [1] * x.ndim) if keepdims else y


def _paddle_spread(name):
    return lambda paddle, x, axis, keepdims, correction=0: getattr(paddle, name)(
        x, _listed(axis), bool(correction), keepdims
    )


def _paddle_cumsum(paddle, x, axis, exclusive, reverse):
    turned = paddle.flip(x, [axis]) if reverse else x
    if exclusive:
        first = paddle.zeros_like(paddle.slice(turned, [axis % x.ndim], [0], [1]))
        before = [] if x.shape[axis] == 1 else [paddle.slice(turned, [axis % x.ndim], [0], [x.shape[axis] - 1])]
        turned = paddle.concat([first, *before], axis)
    total = paddle.cumsum(turned, axis)
    return paddle.flip(total, [axis]) if reverse else total


TABLE.add(
    *(
        Row(name, _torch(name), call(f"reduce_{name}"), _paddle(name))
        for name in ("sum", "mean", "logsumexp", "any", "all")
    ),
    *(Row(name, _torch_extreme(name), _tf_extreme(name), _paddle_extreme(name)) for name in ("min", "max")),
    Row("prod", _torch_prod, call("reduce_prod"), _paddle("prod"), power=_PRODUCT),
    Row("var", _torch_spread("var"), _tf_variance, _paddle_spread("var"), power=2),
    Row(
        "std",
        torch=_torch_spread("std"),
        tensorflow=lambda tf, *inputs, **attributes: tf.sqrt(_tf_variance(tf, *inputs, **attributes)),
        paddle=_paddle_spread("std"),
        power=2,
    ),
    Row(
        "p_norm",
        torch=lambda torch, x, axis, keepdims, p: torch.linalg.vector_norm(x, p, _axes(x, axis), keepdims),
        tensorflow=_tf_norm,
        paddle=_paddle_norm,
        power=3,
    ),
    Row("cumsum", _torch_cumsum, call("cumsum"), _paddle_cumsum),
)
