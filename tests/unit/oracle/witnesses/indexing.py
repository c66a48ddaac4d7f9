"""Witnesses of gather, scatter, masks and order."""

from __future__ import annotations

from tests.unit.oracle.witnesses.witness import PADDLE, TENSORFLOW, TORCH, call, refusing


def _vectors(index):
    return tuple(index[..., i] for i in range(index.shape[-1]))


def _torch_gather(torch, x, index, axis):
    y = torch.index_select(x, axis, index.reshape(-1))
    return y.reshape(x.shape[:axis] + index.shape + x.shape[axis + 1 :])


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
        "masked_select": call("masked_select"),
        "masked_fill": call("masked_fill", "value"),
        "one_hot": lambda torch, ids, depth, on, off: (
            torch.nn.functional.one_hot(ids, depth).double() * (on - off) + off
        ),
        "sort": lambda torch, x, axis, descending: tuple(torch.sort(x, axis, descending)),
        "argsort": call("argsort", "axis", "descending"),
        "topk": lambda torch, x, k, axis, largest: tuple(torch.topk(x, k, axis, largest)),
        "argmax": call("argmax", "axis", "keepdims"),
        "argmin": call("argmin", "axis", "keepdims"),
    }
)


def _tf_sort(tf, x, axis, descending):
    direction = "DESCENDING" if descending else "ASCENDING"
    return tf.sort(x, axis, direction), tf.cast(tf.argsort(x, axis, direction), tf.int64)


def _tf_topk(tf, x, k, axis, largest):
    order = [a for a in range(x.ndim) if a != axis] + [axis]
    back = [order.index(a) for a in range(x.ndim)]
    values, indices = tf.math.top_k(tf.transpose(x if largest else -x, order), k)
    values = tf.transpose(values, back)
    return values if largest else -values, tf.cast(tf.transpose(indices, back), tf.int64)


def _tf_extreme(name):
    def row(tf, x, axis, keepdims):
        index = getattr(tf, name)(x, axis)
        return tf.expand_dims(index, axis) if keepdims else index

    return row


TENSORFLOW.add(
    {
        "gather": call("gather"),
        "index_select": call("gather"),
        "take_along_axis": refusing(
            lambda tf, x, index, axis: tf.gather(x, index, axis=axis, batch_dims=axis),
            lambda x, index, axis: axis != x.ndim - 1,
            "tf.gather with batch dimensions takes elements along the last axis",
        ),
        "gather_nd": call("gather_nd"),
        "scatter": lambda tf, x, index, updates: tf.tensor_scatter_nd_update(x, index[:, None], updates),
        "scatter_add": lambda tf, x, index, updates: tf.tensor_scatter_nd_add(x, index[:, None], updates),
        "scatter_nd_add": call("tensor_scatter_nd_add"),
        "masked_select": call("boolean_mask"),
        "masked_fill": lambda tf, x, mask, value: tf.where(mask, tf.constant(value, x.dtype), x),
        "one_hot": call("one_hot", "depth", "on", "off"),
        "sort": _tf_sort,
        "argsort": lambda tf, x, axis, descending: _tf_sort(tf, x, axis, descending)[1],
        "topk": _tf_topk,
        "argmax": _tf_extreme("argmax"),
        "argmin": _tf_extreme("argmin"),
    }
)


def _paddle_gather(paddle, x, index, axis):
    y = paddle.gather(x, index.flatten(), axis)
    return y.reshape([*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]])


PADDLE.add(
    {
        "gather": _paddle_gather,
        "index_select": call("index_select", "axis"),
        "take_along_axis": call("take_along_axis", "axis", broadcast=False),
        "gather_nd": call("gather_nd"),
        "scatter": call("scatter", overwrite=True),
        # paddle.scatter with overwrite=False clears the rows it adds to; index_add keeps them.
        "scatter_add": lambda paddle, x, index, updates: paddle.index_add(x, index, 0, updates),
        "scatter_nd_add": call("scatter_nd_add"),
        "masked_select": call("masked_select"),
        "masked_fill": lambda paddle, x, mask, value: paddle.where(mask, paddle.full_like(x, value), x),
        "one_hot": lambda paddle, ids, depth, on, off: (
            paddle.nn.functional.one_hot(ids, depth).astype("float64") * (on - off) + off
        ),
        "sort": lambda paddle, x, axis, descending: (
            paddle.sort(x, axis, descending),
            paddle.argsort(x, axis, descending),
        ),
        "argsort": call("argsort", "axis", "descending"),
        "topk": call("topk", "k", "axis", "largest"),
        "argmax": call("argmax", "axis", "keepdims"),
        "argmin": call("argmin", "axis", "keepdims"),
    }
)
# paddle.gather spreads the first slice of the gradient over all when its axis is not 0; index_select does not.
PADDLE.except_for("gather", "gradients", "float64 float32", "it is wrong along every axis but the first")
