"""Gather, scatter, masks and order."""

from __future__ import annotations

from ipu_conformance.ops.row import TABLE, Missing, Row, call


def _vectors(index):
    return tuple(index[..., i] for i in range(index.shape[-1]))


def _torch_gather(torch, x, index, axis):
    y = torch.index_select(x, axis, index.reshape(-1))
    return y.reshape(x.shape[:axis] + index.shape + x.shape[axis + 1 :])


def _paddle_gather(paddle, x, index, axis):
    """Along the first axis, which alone the handler of an IPU build takes; another one is turned there and back."""
    order = [axis, *(a for a in range(x.ndim) if a != axis)]
    back = [order.index(a) for a in range(x.ndim)]
    first = paddle.transpose(x, order) if axis else x
    y = paddle.gather(first, index if index.ndim == 1 else paddle.flatten(index))
    y = paddle.transpose(y, back) if axis else y
    return y if index.ndim == 1 else paddle.reshape(y, [*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]])


def _paddle_extreme(name):
    """The handler of an IPU build reads neither keepdims nor a missing axis."""

    def ask(paddle, x, axis, keepdims):
        if axis is None:
            place = getattr(paddle, name)(paddle.flatten(x), 0)
            return paddle.reshape(place, [1] * x.ndim) if keepdims else place
        place = getattr(paddle, name)(x, axis)
        return paddle.unsqueeze(place, axis) if keepdims else place

    return ask


def _tf_last(tf, x, axis):
    """``x`` with ``axis`` last, and the order that puts it back."""
    order = [a for a in range(x.ndim) if a != axis] + [axis]
    return tf.transpose(x, order), [order.index(a) for a in range(x.ndim)]


def _tf_take_along(tf, x, index, axis):
    """tf.gather with batch dimensions takes elements along the last axis."""
    (turned, back), (places, _) = _tf_last(tf, x, axis), _tf_last(tf, index, axis)
    return tf.transpose(tf.gather(turned, places, axis=x.ndim - 1, batch_dims=x.ndim - 1), back)


def _tf_sort(tf, x, axis, descending):
    direction = "DESCENDING" if descending else "ASCENDING"
    return tf.sort(x, axis, direction), tf.cast(tf.argsort(x, axis, direction), tf.int64)


def _tf_topk(tf, x, k, axis, largest):
    turned, back = _tf_last(tf, x if largest else -x, axis)
    values, indices = (tf.transpose(part, back) for part in tf.math.top_k(turned, k))
    return values if largest else -values, tf.cast(indices, tf.int64)


def _tf_extreme(name):
    def ask(tf, x, axis, keepdims):
        index = getattr(tf, name)(x, axis)
        return tf.expand_dims(index, axis) if keepdims else index

    return ask


TABLE.add(
    Row("gather", _torch_gather, call("gather"), _paddle_gather),
    Row(
        "index_select",
        torch=lambda torch, x, index, axis: torch.index_select(x, axis, index),
        tensorflow=call("gather"),
        paddle=call("index_select", "axis"),
    ),
    Row(
        "take_along_axis",
        torch=lambda torch, x, index, axis: torch.gather(x, axis, index),
        tensorflow=_tf_take_along,
        paddle=call("take_along_axis", "axis", broadcast=False),
    ),
    Row("gather_nd", lambda torch, x, index: x[_vectors(index)], call("gather_nd"), call("gather_nd")),
    Row(
        "scatter",
        torch=lambda torch, x, index, updates: torch.index_copy(x, 0, index, updates),
        tensorflow=lambda tf, x, index, updates: tf.tensor_scatter_nd_update(x, index[:, None], updates),
        paddle=call("scatter"),
    ),
    Row(
        "scatter_add",
        torch=lambda torch, x, index, updates: torch.index_add(x, 0, index, updates),
        tensorflow=lambda tf, x, index, updates: tf.tensor_scatter_nd_add(x, index[:, None], updates),
        # paddle.scatter with overwrite=False clears the rows it adds to.
        paddle=lambda paddle, x, index, updates: paddle.scatter_nd_add(x, paddle.unsqueeze(index, 1), updates),
    ),
    Row(
        "scatter_nd_add",
        torch=lambda torch, x, index, updates: torch.index_put(x, _vectors(index), updates, accumulate=True),
        tensorflow=call("tensor_scatter_nd_add"),
        paddle=call("scatter_nd_add"),
    ),
    Row(
        "masked_select",
        *(Missing("the shape of the result depends on the values, and a device compiles fixed shapes"),) * 3,
    ),
    Row(
        "masked_fill",
        torch=call("masked_fill", "value"),
        tensorflow=lambda tf, x, mask, value: tf.where(mask, tf.constant(value, x.dtype), x),
        paddle=lambda paddle, x, mask, value: paddle.where(mask, paddle.full_like(x, value), x),
    ),
    Row(
        "one_hot",
        torch=lambda torch, ids, depth, on, off: (
            torch.nn.functional.one_hot(ids, depth).to(torch.float32) * (on - off) + off
        ),
        tensorflow=call("one_hot", "depth", "on", "off"),
        paddle=lambda paddle, ids, depth, on, off: paddle.nn.functional.one_hot(ids, depth) * (on - off) + off,
    ),
    Row(
        "sort",
        torch=lambda torch, x, axis, descending: tuple(torch.sort(x, axis, descending)),
        tensorflow=_tf_sort,
        paddle=lambda paddle, x, axis, descending: (
            paddle.sort(x, axis, descending),
            paddle.argsort(x, axis, descending),
        ),
    ),
    Row(
        "argsort",
        torch=call("argsort", "axis", "descending"),
        tensorflow=lambda tf, x, axis, descending: _tf_sort(tf, x, axis, descending)[1],
        paddle=call("argsort", "axis", "descending"),
    ),
    Row(
        "topk",
        torch=lambda torch, x, k, axis, largest: tuple(torch.topk(x, k, axis, largest)),
        tensorflow=_tf_topk,
        paddle=call("topk", "k", "axis", "largest"),
    ),
    *(
        Row(name, call(name, "axis", "keepdims"), _tf_extreme(name), _paddle_extreme(name))
        for name in ("argmax", "argmin")
    ),
)
