"""Witnesses of the reductions and running sums."""

from __future__ import annotations

from tests.unit.oracle.witnesses.witness import PADDLE, SCIPY, TENSORFLOW, TORCH, Unsupported, call, refusing


def _all_axes(x, axis):
    return tuple(range(x.ndim)) if axis is None else axis


def _filtered(scipy, x, axis, exclusive, reverse):
    """A recursive filter with one pole at 1 sums up."""
    turned = x.swapaxes(axis, -1)[..., :: -1 if reverse else 1]
    numerator = [0.0, 1.0] if exclusive else [1.0]
    total = scipy.signal.lfilter(numerator, [1.0, -1.0], turned, axis=-1).astype(x.dtype)
    return total[..., :: -1 if reverse else 1].swapaxes(axis, -1)


SCIPY.add({"logsumexp": call("special.logsumexp"), "cumsum": _filtered})


def _torch(name):
    """A row of a function that takes all axes only when they are listed."""
    return lambda torch, x, axis, keepdims: getattr(torch, name)(x, _all_axes(x, axis), keepdim=keepdims)


def _torch_prod(torch, x, axis, keepdims):
    axes = _all_axes(x, axis)
    for a in sorted((axes,) if isinstance(axes, int) else axes, reverse=True):
        x = torch.prod(x, a, keepdim=keepdims)
    return x


def _torch_extreme(name):
    def row(torch, x, axis, keepdims, ties="split"):
        if ties == "split":
            return getattr(torch, f"a{name}")(x, _all_axes(x, axis), keepdims)
        if ties == "first" and isinstance(axis, int):
            return getattr(torch, name)(x, axis, keepdims).values
        raise Unsupported(f"torch has no {name} over {axis} whose gradient at ties is {ties}")

    return row


def _torch_spread(name):
    return lambda torch, x, axis, keepdims, correction: getattr(torch, name)(
        x, _all_axes(x, axis), correction=correction, keepdim=keepdims
    )


TORCH.add({name: _torch(name) for name in ("sum", "mean", "logsumexp", "any", "all")})
TORCH.add({name: _torch_extreme(name) for name in ("min", "max")})
TORCH.add({name: _torch_spread(name) for name in ("var", "std")})
TORCH.add(
    {
        "prod": _torch_prod,
        "p_norm": lambda torch, x, axis, keepdims, p: torch.linalg.vector_norm(x, p, _all_axes(x, axis), keepdims),
    }
)


@TORCH.row("cumsum")
def _torch_cumsum(torch, x, axis, exclusive, reverse):
    turned = x.flip(axis) if reverse else x
    if exclusive:
        first = torch.zeros_like(turned.narrow(axis, 0, 1))
        turned = torch.cat([first, turned.narrow(axis, 0, x.shape[axis] - 1)], axis)
    total = torch.cumsum(turned, axis)
    return total.flip(axis) if reverse else total


def _tf_norm(tf, x, axis, keepdims, p):
    # tf.norm takes two axes for a matrix norm; their vector norm is that of the flattened group.
    if isinstance(axis, tuple) and len(axis) > 1 and len(axis) < x.ndim:
        raise Unsupported("tf.norm reduces one axis or all")
    axis = axis[0] if isinstance(axis, tuple) and len(axis) == 1 else None if isinstance(axis, tuple) else axis
    y = tf.norm(x, p, axis, keepdims)
    return tf.reshape(y, [1] * x.ndim) if keepdims and axis is None else y


def _tf_extreme(name):
    return refusing(
        lambda tf, x, axis, keepdims, **_: getattr(tf, f"reduce_{name}")(x, axis, keepdims),
        lambda x, ties="split", **_: ties != "split",
        "TensorFlow splits the gradient at ties",
    )


def _tf_spread(name):
    return refusing(
        lambda tf, x, axis, keepdims, **_: getattr(tf.math, f"reduce_{name}")(x, axis, keepdims),
        lambda x, correction, **_: bool(correction),
        "TensorFlow's variance is the population's",
    )


TENSORFLOW.add({name: call(f"reduce_{name}") for name in ("sum", "mean", "prod", "logsumexp", "any", "all")})
TENSORFLOW.add({name: _tf_extreme(name) for name in ("min", "max")})
TENSORFLOW.add({"var": _tf_spread("variance"), "std": _tf_spread("std"), "p_norm": _tf_norm, "cumsum": call("cumsum")})


def _paddle(name):
    return lambda paddle, x, axis, keepdims: getattr(paddle, name)(x, _listed(axis), keepdim=keepdims)


def _listed(axis):
    return list(axis) if isinstance(axis, tuple) else axis


def _paddle_extreme(name):
    def row(paddle, x, axis, keepdims, ties="split"):
        by_ties = {"split": f"a{name}", "all": name}
        if ties not in by_ties:
            raise Unsupported("Paddle gives no gradient to the first of equal elements only")
        if isinstance(axis, int) and x.shape[axis] == 1:
            raise Unsupported("Paddle leaves the gradient unset when the axis has one element")
        return getattr(paddle, by_ties[ties])(x, _listed(axis), keepdim=keepdims)

    return row


def _paddle_norm(paddle, x, axis, keepdims, p):
    if x.dtype != paddle.float32 and p not in (1.0, 2.0, float("inf")):
        raise Unsupported("Paddle holds the exponent of the root in float32")
    flat = axis if isinstance(axis, int) else axis[0] if axis is not None and len(axis) == 1 else None
    if flat is None and axis is not None and len(axis) != x.ndim:
        raise Unsupported("paddle.norm reduces one axis or all, or takes a matrix norm")
    y = paddle.norm(x if flat is not None else x.flatten(), p, flat if flat is not None else 0, keepdims)
    return y.reshape([1] * x.ndim) if keepdims and flat is None else y


def _paddle_spread(name):
    return lambda paddle, x, axis, keepdims, correction: getattr(paddle, name)(
        x, _listed(axis), unbiased=bool(correction), keepdim=keepdims
    )


def _paddle_cumsum(paddle, x, axis, exclusive, reverse):
    total = paddle.cumsum(x.flip([axis]) if reverse else x, axis)
    return total.flip([axis]) if reverse else total


PADDLE.add({name: _paddle(name) for name in ("sum", "mean", "prod", "logsumexp", "any", "all")})
PADDLE.add({name: _paddle_extreme(name) for name in ("min", "max")})
PADDLE.add({name: _paddle_spread(name) for name in ("var", "std")})
PADDLE.add(
    {
        "p_norm": _paddle_norm,
        "cumsum": refusing(
            _paddle_cumsum, lambda x, exclusive, **_: exclusive, "paddle.cumsum includes the element itself"
        ),
    }
)
PADDLE.except_for("p_norm", "gradients", "float64", "it adds 1e-12 to the norm that it divides by")
