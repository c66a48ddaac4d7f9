"""Witnesses of gather, scatter, masks and order."""

from __future__ import annotations

from typing import Any, Tuple

from tests.unit.oracle.witnesses.witness import PADDLE, TENSORFLOW, TORCH, Unsupported


def _vectors(index: Any) -> Tuple[Any, ...]:
    return tuple(index[..., i] for i in range(index.shape[-1]))


def _torch_gather(torch: Any, x: Any, index: Any, axis: int) -> Any:
    y = torch.index_select(x, axis, index.reshape(-1))
    return y.reshape(x.shape[:axis] + index.shape + x.shape[axis + 1 :])


def _torch_topk(torch: Any, x: Any, k: int, axis: int, largest: bool) -> Any:
    return tuple(torch.topk(x, k, axis, largest, True))


TORCH.add(
    {
        "gather": _torch_gather,
        "index_select": lambda torch, x, index, axis: torch.index_select(x, axis, index),
        "take_along_axis": lambda torch, x, index, axis: torch.gather(x, axis, index),
        "gather_nd": lambda torch, x, index: x[_vectors(index)],
        "scatter": lambda torch, x, index, updates: torch.index_copy(x, 0, index, updates),
        "scatter_add": lambda torch, x, index, updates: torch.index_add(x, 0, index, updates),
        "scatter_nd_add": lambda torch, x, index, updates: torch.index_put(
            x, _vectors(index), updates, accumulate=True
        ),
        "masked_select": lambda torch, x, mask: torch.masked_select(x, mask),
        "masked_fill": lambda torch, x, mask, value: torch.masked_fill(x, mask, value),
        "one_hot": lambda torch, ids, depth, on, off: (
            torch.nn.functional.one_hot(ids, depth).double() * (on - off) + off
        ),
        "sort": lambda torch, x, axis, descending: tuple(torch.sort(x, axis, descending)),
        "argsort": lambda torch, x, axis, descending: torch.argsort(x, axis, descending),
        "topk": _torch_topk,
        "argmax": lambda torch, x, axis, keepdims: torch.argmax(x, axis, keepdims),
        "argmin": lambda torch, x, axis, keepdims: torch.argmin(x, axis, keepdims),
    }
)


def _tf_sort(tf: Any, x: Any, axis: int, descending: bool) -> Any:
    direction = "DESCENDING" if descending else "ASCENDING"
    return tf.sort(x, axis, direction), tf.cast(tf.argsort(x, axis, direction), tf.int64)


def _tf_topk(tf: Any, x: Any, k: int, axis: int, largest: bool) -> Any:
    order = [a for a in range(x.ndim) if a != axis] + [axis]
    back = [order.index(a) for a in range(x.ndim)]
    values, indices = tf.math.top_k(tf.transpose(x if largest else -x, order), k)
    values = tf.transpose(values, back)
    return values if largest else -values, tf.cast(tf.transpose(indices, back), tf.int64)


def _tf_extreme(name: str) -> Any:
    def row(tf: Any, x: Any, axis: int, keepdims: bool) -> Any:
        index = getattr(tf, name)(x, axis)
        return tf.expand_dims(index, axis) if keepdims else index

    return row


def _tf_take_along(tf: Any, x: Any, index: Any, axis: int) -> Any:
    if axis != x.ndim - 1:
        raise Unsupported("tf.gather with batch dimensions takes elements along the last axis")
    return tf.gather(x, index, axis=axis, batch_dims=axis)


TENSORFLOW.add(
    {
        "gather": lambda tf, x, index, axis: tf.gather(x, index, axis=axis),
        "index_select": lambda tf, x, index, axis: tf.gather(x, index, axis=axis),
        "take_along_axis": _tf_take_along,
        "gather_nd": lambda tf, x, index: tf.gather_nd(x, index),
        "scatter": lambda tf, x, index, updates: tf.tensor_scatter_nd_update(x, index[:, None], updates),
        "scatter_add": lambda tf, x, index, updates: tf.tensor_scatter_nd_add(x, index[:, None], updates),
        "scatter_nd_add": lambda tf, x, index, updates: tf.tensor_scatter_nd_add(x, index, updates),
        "masked_select": lambda tf, x, mask: tf.boolean_mask(x, mask),
        "masked_fill": lambda tf, x, mask, value: tf.where(mask, tf.constant(value, x.dtype), x),
        "one_hot": lambda tf, ids, depth, on, off: tf.one_hot(ids, depth, on, off),
        "sort": _tf_sort,
        "argsort": lambda tf, x, axis, descending: _tf_sort(tf, x, axis, descending)[1],
        "topk": _tf_topk,
        "argmax": _tf_extreme("argmax"),
        "argmin": _tf_extreme("argmin"),
    }
)


def _paddle_gather(paddle: Any, x: Any, index: Any, axis: int) -> Any:
    y = paddle.gather(x, index.flatten(), axis)
    return y.reshape([*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]])


PADDLE.add(
    {
        "gather": _paddle_gather,
        "index_select": lambda paddle, x, index, axis: paddle.index_select(x, index, axis),
        "take_along_axis": lambda paddle, x, index, axis: paddle.take_along_axis(x, index, axis, broadcast=False),
        "gather_nd": lambda paddle, x, index: paddle.gather_nd(x, index),
        "scatter": lambda paddle, x, index, updates: paddle.scatter(x, index, updates, overwrite=True),
        # paddle.scatter with overwrite=False clears the rows it adds to; index_add keeps them.
        "scatter_add": lambda paddle, x, index, updates: paddle.index_add(x, index, 0, updates),
        "scatter_nd_add": lambda paddle, x, index, updates: paddle.scatter_nd_add(x, index, updates),
        "masked_select": lambda paddle, x, mask: paddle.masked_select(x, mask),
        "masked_fill": lambda paddle, x, mask, value: paddle.where(mask, paddle.full_like(x, value), x),
        "one_hot": lambda paddle, ids, depth, on, off: (
            paddle.nn.functional.one_hot(ids, depth).astype("float64") * (on - off) + off
        ),
        "sort": lambda paddle, x, axis, descending: (
            paddle.sort(x, axis, descending),
            paddle.argsort(x, axis, descending),
        ),
        "argsort": lambda paddle, x, axis, descending: paddle.argsort(x, axis, descending),
        "topk": lambda paddle, x, k, axis, largest: paddle.topk(x, k, axis, largest),
        "argmax": lambda paddle, x, axis, keepdims: paddle.argmax(x, axis, keepdims),
        "argmin": lambda paddle, x, axis, keepdims: paddle.argmin(x, axis, keepdims),
    }
)
# paddle.gather spreads the first slice of the gradient over all when its axis is not 0; index_select does not.
for _dtype in ("float64", "float32"):
    PADDLE.except_for("gather", ("gradients",), _dtype, "it is wrong along every axis but the first")
