"""Matrix products, contractions, distances and softmax."""

from __future__ import annotations

import numpy as np

from ipu_conformance.errors import Inexpressible
from ipu_conformance.ops.row import TABLE, Row, call, functional, refusing


def _torch_matmul(torch, a, b, transpose_a=False, transpose_b=False):
    a = a.transpose(-1, -2) if transpose_a and a.ndim > 1 else a
    b = b.transpose(-1, -2) if transpose_b and b.ndim > 1 else b
    return torch.matmul(a, b)


def _paddle_matmul(paddle, a, b, transpose_a=False, transpose_b=False):
    batches = [tuple(x.shape[:-2]) for x in (a, b)]
    if np.broadcast_shapes(*batches) != max(batches, key=len):
        raise Inexpressible("a program declares the stack of the operand with more axes for the result")
    return paddle.matmul(a, b, transpose_x=transpose_a, transpose_y=transpose_b)


def _paddle_bmm(paddle, a, b, transpose_a=False, transpose_b=False):
    if transpose_a or transpose_b:
        return _paddle_matmul(paddle, a, b, transpose_a, transpose_b)
    return paddle.bmm(a, b)


_tf_matmul = refusing(call("matmul"), lambda a, b, **_: 1 in (a.ndim, b.ndim), "tf.matmul takes matrices only")


def _einsum(module, *operands, equation):
    return module.einsum(equation, *operands)


def _tf_trace(tf, x, offset, axis1, axis2):
    others = [axis for axis in range(x.ndim) if axis not in (axis1, axis2)]
    return tf.reduce_sum(tf.linalg.diag_part(tf.transpose(x, [*others, axis1, axis2]), k=offset), -1)


def _tf_kron(tf, a, b):
    rank = max(a.ndim, b.ndim)
    one, other = ([1] * (rank - x.ndim) + list(x.shape) for x in (a, b))
    left = tf.reshape(a, [size for n in one for size in (n, 1)])
    right = tf.reshape(b, [size for n in other for size in (1, n)])
    return tf.reshape(left * right, [n * m for n, m in zip(one, other)])


def _paddle_trace(paddle, x, offset, axis1, axis2):
    if axis1 > axis2:
        raise Inexpressible("paddle.trace has rows along the smaller axis, whichever is named first")
    return paddle.trace(x, offset, axis1, axis2)


def _added_product(module, c, a, b, alpha, beta):
    return beta * c + alpha * module.matmul(a, b)


TABLE.add(
    Row("matmul", _torch_matmul, _tf_matmul, _paddle_matmul),
    Row("bmm", _torch_matmul, _tf_matmul, _paddle_bmm),
    Row(
        "linear",
        torch=functional("linear"),
        tensorflow=lambda tf, x, w, *bias: sum(bias, tf.tensordot(x, w, [[-1], [-1]])),
        paddle=lambda paddle, x, w, *bias: paddle.nn.functional.linear(x, paddle.transpose(w, [1, 0]), *bias),
    ),
    *(Row(name, call(name), _added_product, _added_product) for name in ("addmm", "baddbmm")),
    Row("outer", call("outer"), lambda tf, a, b: tf.tensordot(a, b, axes=0), call("outer")),
    Row("dot", call("dot"), lambda tf, a, b: tf.tensordot(a, b, axes=1), call("dot")),
    Row("einsum", _einsum, _einsum, _einsum),
    Row("kron", call("kron"), _tf_kron, call("kron")),
    Row(
        "trace",
        torch=lambda torch, x, offset, axis1, axis2: torch.diagonal(x, offset, axis1, axis2).sum(-1),
        tensorflow=_tf_trace,
        paddle=_paddle_trace,
    ),
    Row(
        "dist",
        torch=call("dist", "p"),
        tensorflow=lambda tf, x, y, p: tf.norm(tf.reshape(x - y, [-1]), ord=p),
        paddle=call("dist", "p"),
        power=3,
    ),
    Row("softmax", functional("softmax", "axis"), call("nn.softmax"), functional("softmax")),
    Row("log_softmax", functional("log_softmax", "axis"), call("nn.log_softmax"), functional("log_softmax")),
)
