"""Witnesses of contractions, diagonals' sums, distances, parts that are written and norms by given statistics."""

from __future__ import annotations

from typing import Any, Tuple

from tests.unit.oracle.witnesses.witness import PADDLE, TENSORFLOW, TORCH, Unsupported


def _spans(starts: Any, stops: Any, steps: Any) -> Tuple[slice, ...]:
    return tuple(slice(*bounds) for bounds in zip(starts, stops, steps))


def _written(library: Any, x: Any, value: Any, starts: Any, stops: Any, steps: Any) -> Any:
    copy = x.clone()
    copy[_spans(starts, stops, steps)] = value
    return copy


def _torch_rank_loss(torch: Any, x: Any, other: Any, target: Any, reduction: str) -> Any:
    return torch.nn.functional.binary_cross_entropy_with_logits(x - other, target, reduction=reduction)


def _torch_data_norm(torch: Any, x: Any, size: float, total: float, squares: float) -> Any:
    return (x - total / size) * (size / squares) ** 0.5


TORCH.add(
    {
        "einsum": lambda torch, *operands, equation: torch.einsum(equation, *operands),
        "kron": lambda torch, a, b: torch.kron(a, b),
        "trace": lambda torch, x, offset, axis1, axis2: torch.diagonal(x, offset, axis1, axis2).sum(-1),
        "dist": lambda torch, x, y, p: torch.dist(x, y, p),
        "slice_update": _written,
        "rank_loss": _torch_rank_loss,
        "data_norm": _torch_data_norm,
    }
)


def _tf_rank_loss(tf: Any, x: Any, other: Any, target: Any, reduction: str) -> Any:
    loss = tf.nn.sigmoid_cross_entropy_with_logits(target, x - other)
    return {"none": lambda value: value, "sum": tf.reduce_sum, "mean": tf.reduce_mean}[reduction](loss)


TENSORFLOW.add(
    {
        "einsum": lambda tf, *operands, equation: tf.einsum(equation, *operands),
        "dist": lambda tf, x, y, p: tf.norm(tf.reshape(x - y, [-1]), ord=p),
        "rank_loss": _tf_rank_loss,
    }
)


def _paddle_kron(paddle: Any, a: Any, b: Any) -> Any:
    if a.ndim != b.ndim:
        raise Unsupported("Paddle's gradient has the rank of the product for the operand of the lower rank")
    return paddle.kron(a, b)


def _paddle_trace(paddle: Any, x: Any, offset: int, axis1: int, axis2: int) -> Any:
    if axis1 > axis2:
        raise Unsupported("paddle.trace has rows along the smaller axis, whichever is named first")
    return paddle.trace(x, offset, axis1, axis2)


PADDLE.add(
    {
        "einsum": lambda paddle, *operands, equation: paddle.einsum(equation, *operands),
        "kron": _paddle_kron,
        "trace": _paddle_trace,
        "dist": lambda paddle, x, y, p: paddle.dist(x, y, p),
        "slice_update": _written,
    }
)
PADDLE.except_for("dist", ("outputs", "gradients"), "float64", "its powers and roots have exponents in float32")
