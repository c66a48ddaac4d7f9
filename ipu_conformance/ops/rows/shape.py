"""Shapes, slices, joins, padding, triangles and diagonals."""

from __future__ import annotations

from ipu_conformance.errors import Inexpressible
from ipu_conformance.ops.row import TABLE, Row, call, channels_first, channels_last, functional


def _one_by_one(insert):
    """The call of a framework that inserts one axis at a time."""

    def ask(module, x, axis):
        for a in axis:
            x = getattr(module, insert)(x, a)
        return x

    return ask


def _spans(starts, stops, steps):
    return tuple(slice(*bounds) for bounds in zip(starts, stops, steps))


# Images: blocks between space and channels, and windows as columns.


def _tf_flatten(tf, x, start, stop):
    shape = list(x.shape)
    return tf.reshape(x, [*shape[:start], -1, *shape[stop % len(shape) + 1 :]])


def _tf_unfold(tf, x, kernel, stride, padding, dilation):
    padded = tf.pad(channels_last(tf, x), [(0, 0), *((p, p) for p in padding), (0, 0)])
    patches = tf.image.extract_patches(padded, [1, *kernel, 1], [1, *stride, 1], [1, *dilation, 1], "VALID")
    batch, rows, columns, _ = patches.shape
    # TensorFlow's columns count the channel last.
    parts = tf.reshape(patches, [batch, rows * columns, kernel[0] * kernel[1], x.shape[1]])
    return tf.reshape(tf.transpose(parts, [0, 3, 2, 1]), [batch, -1, rows * columns])


def _paddle_unfold(paddle, x, kernel, stride, padding, dilation):
    return paddle.nn.functional.unfold(x, list(kernel), list(stride), list(padding), list(dilation))


def _to_space(transpose):
    """Depth to space by transposing the blocks, which takes their order as the oracle names it."""

    def ask(module, x, block, order):
        n, c, h, w = x.shape
        depth = c // block**2
        if order == "DCR":
            parts, axes = [n, block, block, depth, h, w], [0, 3, 4, 1, 5, 2]
        else:
            parts, axes = [n, depth, block, block, h, w], [0, 1, 4, 2, 5, 3]
        y = getattr(module, transpose)(module.reshape(x, parts), axes)
        return module.reshape(y, [n, depth, h * block, w * block])

    return ask


def _to_depth(transpose):
    """Space to depth, the reverse."""

    def ask(module, x, block, order):
        n, c, h, w = x.shape
        parts = module.reshape(x, [n, c, h // block, block, w // block, block])
        axes = [0, 3, 5, 1, 2, 4] if order == "DCR" else [0, 1, 3, 5, 2, 4]
        return module.reshape(getattr(module, transpose)(parts, axes), [n, c * block**2, h // block, w // block])

    return ask


TABLE.add(
    Row("reshape", *(call("reshape", "shape"),) * 3),
    Row("squeeze", *(call("squeeze", "axis"),) * 3),
    Row("tile", *(call("tile", "repeats"),) * 3),
    Row("roll", *(call("roll", "shift", "axis"),) * 3),
    Row("transpose", call("permute", "axes"), call("transpose", "axes"), call("transpose", "axes")),
    Row("unsqueeze", _one_by_one("unsqueeze"), _one_by_one("expand_dims"), call("unsqueeze", "axis")),
    Row("flatten", call("flatten", "start", "stop"), _tf_flatten, call("flatten", "start", "stop")),
    Row("expand", call("broadcast_to", "shape"), call("broadcast_to", "shape"), call("expand", "shape")),
    Row("flip", call("flip", "axis"), call("reverse", "axis"), call("flip", "axis")),
    Row(
        "shape",
        torch=lambda torch, x: torch.tensor(x.shape),
        tensorflow=lambda tf, x: tf.shape(x, out_type=tf.int64),
        paddle=lambda paddle, x: paddle.cast(paddle.shape(x), "int64"),
    ),
    Row(
        "depth_to_space",
        torch=_to_space("permute"),
        tensorflow=lambda tf, x, block, order: channels_first(tf, tf.nn.depth_to_space(channels_last(tf, x), block)),
        paddle=_to_space("transpose"),
    ),
    Row(
        "space_to_depth",
        torch=_to_depth("permute"),
        tensorflow=lambda tf, x, block, order: channels_first(tf, tf.nn.space_to_depth(channels_last(tf, x), block)),
        paddle=_to_depth("transpose"),
    ),
    Row(
        "pixel_shuffle",
        torch=lambda torch, x, block, order: torch.nn.functional.pixel_shuffle(x, block),
        tensorflow=_to_space("transpose"),
        paddle=lambda paddle, x, block, order: paddle.nn.functional.pixel_shuffle(x, block),
    ),
    Row(
        "pixel_unshuffle",
        torch=lambda torch, x, block, order: torch.nn.functional.pixel_unshuffle(x, block),
        tensorflow=_to_depth("transpose"),
        paddle=_to_depth("transpose"),
    ),
    Row(
        "unfold",
        torch=functional("unfold", "kernel", "dilation", "padding", "stride"),
        tensorflow=_tf_unfold,
        paddle=_paddle_unfold,
    ),
)


# Slices and joins.


def _torch_slice(torch, x, starts, stops):
    for axis, (start, stop) in enumerate(zip(starts, stops)):
        size = x.shape[axis]
        start, stop = start % size, stop % size or size
        x = torch.narrow(x, axis, start, stop - start)
    return x


def _tf_slice(tf, x, starts, stops):
    begins = [start % size for start, size in zip(starts, x.shape)]
    ends = [stop % size or size for stop, size in zip(stops, x.shape)]
    return tf.slice(x, begins, [end - begin for begin, end in zip(begins, ends)])


def _paddle_slice(paddle, x, starts, stops):
    return paddle.slice(x, list(range(len(starts))), list(starts), list(stops))


def _paddle_strided_slice(paddle, x, starts, stops, steps):
    return paddle.strided_slice(x, list(range(len(starts))), list(starts), list(stops), list(steps))


def _torch_update(torch, x, value, **bounds):
    y = x.clone()
    y[_spans(**bounds)] = value
    return y


def _tf_update(tf, x, value, starts, stops, steps):
    spans = [range(size)[span] for size, span in zip(x.shape, _spans(starts, stops, steps))]
    places = tf.stack(tf.meshgrid(*spans, indexing="ij"), -1)
    return tf.tensor_scatter_nd_update(x, places, tf.broadcast_to(value, [len(span) for span in spans]))


def _paddle_update(paddle, x, value, **bounds):
    if not paddle.in_dynamic_mode():
        return paddle.static.setitem(x, _spans(**bounds), value)
    y = x.clone()
    y[_spans(**bounds)] = value
    return y


TABLE.add(
    Row("slice", _torch_slice, _tf_slice, _paddle_slice),
    Row(
        "strided_slice",
        torch=lambda torch, x, **bounds: x[_spans(**bounds)],
        tensorflow=call("strided_slice", "starts", "stops", "steps"),
        paddle=_paddle_strided_slice,
    ),
    Row("slice_update", _torch_update, _tf_update, _paddle_update),
    Row(
        "split",
        torch=call("split", "sizes", "axis"),
        tensorflow=call("split", "sizes", "axis"),
        paddle=lambda paddle, x, sizes, axis: paddle.split(x, list(sizes), axis),
    ),
    Row(
        "concat",
        torch=lambda torch, *xs, axis: torch.cat(xs, axis),
        tensorflow=lambda tf, *xs, axis: tf.concat(xs, axis),
        paddle=lambda paddle, *xs, axis: paddle.concat(list(xs), axis),
    ),
    Row("stack", *(lambda module, *xs, axis: module.stack(list(xs), axis),) * 3),
    Row("unstack", call("unbind", "axis"), call("unstack"), call("unstack", "axis")),
)


def _paddle_meshgrid(paddle, *xs, indexing):
    grids = paddle.meshgrid(*xs)
    order = [1, 0, *range(2, len(xs))]
    return [paddle.transpose(grid, order) for grid in grids] if indexing == "xy" else grids


# Padding, triangles and diagonals.


def _innermost_first(pads):
    return [width for pair in reversed(pads) for width in pair]


def _torch_pad(torch, x, pads, mode, value=0.0):
    filled = (value,) if mode == "constant" else ()
    return torch.nn.functional.pad(x, _innermost_first(pads[2 - x.ndim :]), mode, *filled)


def _tf_pad(tf, x, pads, mode, value=0.0):
    if mode not in ("constant", "reflect"):
        raise Inexpressible("tf.pad has neither replicated nor circular padding")
    return tf.pad(x, [(0, 0)] * (x.ndim - len(pads)) + list(pads), mode.upper(), value)


def _paddle_pad(paddle, x, pads, mode, value=0.0):
    if mode in ("replicate", "circular"):
        raise Inexpressible("the handler of an IPU build of Paddle refuses the modes replicate and circular")
    return paddle.nn.functional.pad(x, _innermost_first(pads[2 - x.ndim :]), mode=mode, value=value)


def _tf_band(tf, x, offset, upper):
    """The triangle on one side of a diagonal; a band holds the main diagonal, so it may be what is left out."""
    offset = max(-x.shape[-2], min(offset, x.shape[-1]))  # TensorFlow refuses diagonals outside the matrix
    if offset <= 0 if upper else offset >= 0:
        return tf.linalg.band_part(x, *((-offset, -1) if upper else (-1, offset)))
    rest = tf.linalg.band_part(tf.ones(x.shape, bool), *((-1, offset - 1) if upper else (-offset - 1, -1)))
    return tf.where(rest, tf.zeros_like(x), x)


TABLE.add(
    Row("meshgrid", call("meshgrid"), call("meshgrid"), _paddle_meshgrid),
    Row("pad", _torch_pad, _tf_pad, _paddle_pad),
    *(
        Row(
            name,
            torch=call(name, "offset"),
            tensorflow=lambda tf, x, offset, upper=name == "triu": _tf_band(tf, x, offset, upper),
            paddle=call(name, "offset"),
        )
        for name in ("triu", "tril")
    ),
    Row(
        "diag",
        torch=call("diag", "offset"),
        tensorflow=lambda tf, x, offset: (
            tf.linalg.diag(x, k=offset) if x.ndim == 1 else tf.linalg.diag_part(x, k=offset)
        ),
        paddle=call("diag", "offset"),
        without_gradient=("paddle",),  # a program declares the result constant
    ),
)
