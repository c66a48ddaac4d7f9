"""Witnesses of the reductions and running sums."""

from __future__ import annotations

from typing import Any, Callable, Optional

from tests.unit.oracle.witnesses.witness import PADDLE, SCIPY, TENSORFLOW, TORCH, Row, Unsupported

Axis = Any


def _all_axes(x: Any, axis: Axis) -> Axis:
    return tuple(range(x.ndim)) if axis is None else axis


SCIPY.add(
    {
        "logsumexp": lambda scipy, x, axis, keepdims: scipy.special.logsumexp(x, axis=axis, keepdims=keepdims),
        # A recursive filter with one pole at 1 sums up.
        "cumsum": lambda scipy, x, axis, exclusive, reverse: _filtered(scipy, x, axis, exclusive, reverse),
    }
)


def _filtered(scipy: Any, x: Any, axis: int, exclusive: bool, reverse: bool) -> Any:
    turned = x.swapaxes(axis, -1)[..., :: -1 if reverse else 1]
    numerator = [0.0, 1.0] if exclusive else [1.0]
    total = scipy.signal.lfilter(numerator, [1.0, -1.0], turned, axis=-1).astype(x.dtype)
    return total[..., :: -1 if reverse else 1].swapaxes(axis, -1)


def _torch(call: Callable[..., Any]) -> Row:
    return lambda torch, x, axis, keepdims, **rest: call(torch, x, _all_axes(x, axis), keepdims, **rest)


def _torch_prod(torch: Any, x: Any, axis: Axis, keepdims: bool) -> Any:
    for a in sorted((axis,) if isinstance(axis, int) else axis, reverse=True):
        x = torch.prod(x, a, keepdim=keepdims)
    return x


def _torch_extreme(name: str) -> Row:
    def row(torch: Any, x: Any, axis: Axis, keepdims: bool, ties: str = "split") -> Any:
        if ties == "split":
            return getattr(torch, f"a{name}")(x, _all_axes(x, axis), keepdims)
        if ties == "first" and isinstance(axis, int):
            return getattr(torch, name)(x, axis, keepdims).values
        raise Unsupported(f"torch has no {name} over {axis} whose gradient at ties is {ties}")

    return row


def _torch_logic(name: str) -> Row:
    return lambda torch, x, axis, keepdims: getattr(torch, name)(x, _all_axes(x, axis), keepdims)


TORCH.add(
    {
        "sum": _torch(lambda torch, x, axis, keep: torch.sum(x, axis, keep)),
        "mean": _torch(lambda torch, x, axis, keep: torch.mean(x, axis, keep)),
        "prod": _torch(_torch_prod),
        "min": _torch_extreme("min"),
        "max": _torch_extreme("max"),
        "logsumexp": _torch(lambda torch, x, axis, keep: torch.logsumexp(x, axis, keep)),
        "p_norm": _torch(lambda torch, x, axis, keep, p: torch.linalg.vector_norm(x, p, axis, keep)),
        "var": _torch(lambda torch, x, axis, keep, correction: torch.var(x, axis, correction=correction, keepdim=keep)),
        "std": _torch(lambda torch, x, axis, keep, correction: torch.std(x, axis, correction=correction, keepdim=keep)),
        "any": _torch_logic("any"),
        "all": _torch_logic("all"),
    }
)


@TORCH.row("cumsum")
def _torch_cumsum(torch: Any, x: Any, axis: int, exclusive: bool, reverse: bool) -> Any:
    turned = x.flip(axis) if reverse else x
    if exclusive:
        first = torch.zeros_like(turned.narrow(axis, 0, 1))
        turned = torch.cat([first, turned.narrow(axis, 0, x.shape[axis] - 1)], axis)
    total = torch.cumsum(turned, axis)
    return total.flip(axis) if reverse else total


def _tf(name: str) -> Row:
    return lambda tf, x, axis, keepdims: getattr(tf, f"reduce_{name}")(x, axis, keepdims)


def _tf_extreme(name: str) -> Row:
    def row(tf: Any, x: Any, axis: Axis, keepdims: bool, ties: str = "split") -> Any:
        if ties != "split":
            raise Unsupported("TensorFlow splits the gradient at ties")
        return getattr(tf, f"reduce_{name}")(x, axis, keepdims)

    return row


def _tf_norm(tf: Any, x: Any, axis: Axis, keepdims: bool, p: float) -> Any:
    # tf.norm takes two axes for a matrix norm; their vector norm is that of the flattened group.
    if isinstance(axis, tuple) and len(axis) > 1 and len(axis) < x.ndim:
        raise Unsupported("tf.norm reduces one axis or all")
    axis = axis[0] if isinstance(axis, tuple) and len(axis) == 1 else None if isinstance(axis, tuple) else axis
    y = tf.norm(x, p, axis, keepdims)
    return tf.reshape(y, [1] * x.ndim) if keepdims and axis is None else y


def _tf_spread(name: str) -> Row:
    def row(tf: Any, x: Any, axis: Axis, keepdims: bool, correction: int) -> Any:
        if correction:
            raise Unsupported("TensorFlow's variance is the population's")
        return getattr(tf.math, name)(x, axis, keepdims)

    return row


TENSORFLOW.add({name: _tf(name) for name in ("sum", "mean", "prod", "logsumexp", "any", "all")})
TENSORFLOW.add({name: _tf_extreme(name) for name in ("min", "max")})
TENSORFLOW.add(
    {
        "p_norm": _tf_norm,
        "var": _tf_spread("reduce_variance"),
        "std": _tf_spread("reduce_std"),
        "cumsum": lambda tf, x, axis, exclusive, reverse: tf.cumsum(x, axis, exclusive, reverse),
    }
)


def _paddle(name: str) -> Row:
    return lambda paddle, x, axis, keepdims: getattr(paddle, name)(x, _listed(axis), keepdim=keepdims)


def _listed(axis: Axis) -> Axis:
    return list(axis) if isinstance(axis, tuple) else axis


def _paddle_extreme(name: str) -> Row:
    def row(paddle: Any, x: Any, axis: Axis, keepdims: bool, ties: str = "split") -> Any:
        own = {"split": f"a{name}", "all": name}
        if ties not in own:
            raise Unsupported("Paddle gives no gradient to the first of equal elements only")
        if isinstance(axis, int) and x.shape[axis] == 1:
            raise Unsupported("Paddle leaves the gradient unset when the axis has one element")
        return getattr(paddle, own[ties])(x, _listed(axis), keepdim=keepdims)

    return row


def _paddle_norm(paddle: Any, x: Any, axis: Axis, keepdims: bool, p: float) -> Any:
    if x.dtype != paddle.float32 and p not in (1.0, 2.0, float("inf")):
        raise Unsupported("Paddle holds the exponent of the root in float32")
    flat: Optional[int] = axis if isinstance(axis, int) else axis[0] if axis is not None and len(axis) == 1 else None
    if flat is None and axis is not None and len(axis) != x.ndim:
        raise Unsupported("paddle.norm reduces one axis or all, or takes a matrix norm")
    y = paddle.norm(x if flat is not None else x.flatten(), p, flat if flat is not None else 0, keepdims)
    return y.reshape([1] * x.ndim) if keepdims and flat is None else y


def _paddle_spread(name: str) -> Row:
    return lambda paddle, x, axis, keepdims, correction: getattr(paddle, name)(
        x, _listed(axis), unbiased=bool(correction), keepdim=keepdims
    )


def _paddle_cumsum(paddle: Any, x: Any, axis: int, exclusive: bool, reverse: bool) -> Any:
    if exclusive:
        raise Unsupported("paddle.cumsum includes the element itself")
    total = paddle.cumsum(x.flip([axis]) if reverse else x, axis)
    return total.flip([axis]) if reverse else total


PADDLE.add({name: _paddle(name) for name in ("sum", "mean", "prod", "logsumexp", "any", "all")})
PADDLE.add({name: _paddle_extreme(name) for name in ("min", "max")})
PADDLE.add({name: _paddle_spread(name) for name in ("var", "std")})
PADDLE.add({"p_norm": _paddle_norm, "cumsum": _paddle_cumsum})
PADDLE.except_for("p_norm", ("gradients",), "float64", "it adds 1e-12 to the norm that it divides by")
