"""Witnesses of the matrix products."""

from __future__ import annotations

from typing import Any

from tests.unit.oracle.witnesses.witness import PADDLE, TENSORFLOW, TORCH, Unsupported


@TORCH.row("matmul", "bmm")
def _torch_matmul(torch: Any, a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False) -> Any:
    a = a.transpose(-1, -2) if transpose_a and a.ndim > 1 else a
    b = b.transpose(-1, -2) if transpose_b and b.ndim > 1 else b
    return torch.matmul(a, b)


@TENSORFLOW.row("matmul", "bmm")
def _tf_matmul(tf: Any, a: Any, b: Any, **transposes: bool) -> Any:
    if a.ndim == 1 or b.ndim == 1:
        raise Unsupported("tf.matmul takes matrices only")
    return tf.matmul(a, b, **transposes)


@PADDLE.row("matmul", "bmm")
def _paddle_matmul(paddle: Any, a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False) -> Any:
    if (transpose_a or transpose_b or 1 not in (a.ndim, b.ndim)) and a.ndim != b.ndim:
        raise Unsupported("Paddle's gradient fails for stacks of different ranks and for transposed vectors")
    return paddle.matmul(a, b, transpose_x=transpose_a, transpose_y=transpose_b)


TORCH.add(
    {
        "linear": lambda torch, x, w, *bias: torch.nn.functional.linear(x, w, *bias),
        "addmm": lambda torch, c, a, b, **scale: torch.addmm(c, a, b, **scale),
        "outer": lambda torch, a, b: torch.outer(a, b),
    }
)
TENSORFLOW.add(
    {
        "linear": lambda tf, x, w, *bias: sum(bias, tf.tensordot(x, w, [[-1], [-1]])),
        "addmm": lambda tf, c, a, b, alpha, beta: beta * c + alpha * tf.linalg.matmul(a, b),
        "outer": lambda tf, a, b: tf.tensordot(a, b, axes=0),
    }
)
PADDLE.add(
    {
        "linear": lambda paddle, x, w, *bias: paddle.nn.functional.linear(x, w.t(), *bias),
        "addmm": lambda paddle, c, a, b, **scale: paddle.addmm(c, a, b, **scale),
        "outer": lambda paddle, a, b: paddle.outer(a, b),
    }
)
