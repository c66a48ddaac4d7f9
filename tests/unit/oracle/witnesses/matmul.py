"""Witnesses of matrix products, contractions, diagonals' sums, distances and softmax."""

from __future__ import annotations

from typing import Dict

from tests.unit.oracle.witnesses.shape import spans
from tests.unit.oracle.witnesses.witness import PADDLE, SCIPY, TENSORFLOW, TORCH, Row, call, functional, refusing


def _torch_matmul(torch, a, b, transpose_a=False, transpose_b=False):
    a = a.transpose(-1, -2) if transpose_a and a.ndim > 1 else a
    b = b.transpose(-1, -2) if transpose_b and b.ndim > 1 else b
    return torch.matmul(a, b)


_tf_matmul = refusing(call("matmul"), lambda a, b, **_: 1 in (a.ndim, b.ndim), "tf.matmul takes matrices only")
_paddle_matmul = refusing(
    lambda paddle, a, b, transpose_a=False, transpose_b=False: paddle.matmul(a, b, transpose_a, transpose_b),
    lambda a, b, transpose_a=False, transpose_b=False: (
        (transpose_a or transpose_b or 1 not in (a.ndim, b.ndim)) and a.ndim != b.ndim
    ),
    "Paddle's gradient fails for stacks of different ranks and for transposed vectors",
)


def _written(library, x, value, **bounds):
    copy = x.clone()
    copy[spans(**bounds)] = value
    return copy


ALIKE: Dict[str, Row] = {
    "addmm": call("addmm"),
    "outer": call("outer"),
    "dist": call("dist", "p"),
    "slice_update": _written,
}
"""What PyTorch and Paddle do alike."""


def _einsum(library, *operands, equation):
    return library.einsum(equation, *operands)


TORCH.add(
    {
        **ALIKE,
        "matmul": _torch_matmul,
        "bmm": _torch_matmul,
        "linear": functional("linear"),
        "einsum": _einsum,
        "kron": call("kron"),
        "trace": lambda torch, x, offset, axis1, axis2: torch.diagonal(x, offset, axis1, axis2).sum(-1),
        "softmax": functional("softmax", "axis"),
        "log_softmax": functional("log_softmax", "axis"),
    }
)
TENSORFLOW.add(
    {
        "matmul": _tf_matmul,
        "bmm": _tf_matmul,
        "linear": lambda tf, x, w, *bias: sum(bias, tf.tensordot(x, w, [[-1], [-1]])),
        "addmm": lambda tf, c, a, b, alpha, beta: beta * c + alpha * tf.linalg.matmul(a, b),
        "outer": lambda tf, a, b: tf.tensordot(a, b, axes=0),
        "einsum": _einsum,
        "dist": lambda tf, x, y, p: tf.norm(tf.reshape(x - y, [-1]), ord=p),
        "softmax": call("nn.softmax"),
        "log_softmax": call("nn.log_softmax"),
    }
)
PADDLE.add(
    {
        **ALIKE,
        "matmul": _paddle_matmul,
        "bmm": _paddle_matmul,
        "linear": lambda paddle, x, w, *bias: paddle.nn.functional.linear(x, w.t(), *bias),
        "einsum": _einsum,
        "kron": refusing(
            call("kron"),
            lambda a, b: a.ndim != b.ndim,
            "Paddle's gradient has the rank of the product for the operand of the lower rank",
        ),
        "trace": refusing(
            call("trace", "offset", "axis1", "axis2"),
            lambda x, axis1, axis2, **_: axis1 > axis2,
            "paddle.trace has rows along the smaller axis, whichever is named first",
        ),
        "softmax": functional("softmax"),
        "log_softmax": functional("log_softmax"),
    }
)
PADDLE.except_for("dist", "outputs gradients", "float64", "its powers and roots have exponents in float32")
SCIPY.add({"softmax": call("special.softmax"), "log_softmax": call("special.log_softmax")})
