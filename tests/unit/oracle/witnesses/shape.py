"""Witnesses of the shape ops, slices, joins, padding, triangles and diagonals."""

from __future__ import annotations

from typing import Dict

from tests.unit.oracle.witnesses.witness import (
    PADDLE,
    TENSORFLOW,
    TORCH,
    Row,
    call,
    channels_first,
    channels_last,
    functional,
    refusing,
)


def _one_by_one(insert):
    """A row for a library that inserts one axis at a time."""

    def row(module, x, axis):
        for a in axis:
            x = insert(module, x, a)
        return x

    return row


def spans(starts, stops, steps):
    """The slices from starts to stops."""
    return tuple(slice(*bounds) for bounds in zip(starts, stops, steps))


def _innermost_first(pads):
    return [width for pair in reversed(pads) for width in pair]


ALIKE: Dict[str, Row] = {
    "reshape": call("reshape", "shape"),
    "squeeze": call("squeeze", "axis"),
    "tile": call("tile", "repeats"),
    "roll": call("roll", "shift", "axis"),
}
"""What all three libraries call by the same names, with attributes in the same order."""
TORCH_AND_PADDLE: Dict[str, Row] = {
    "flatten": call("flatten", "start", "stop"),
    "flip": call("flip", "axis"),
    "pixel_shuffle": lambda module, x, block, order: module.nn.functional.pixel_shuffle(x, block),
    "pixel_unshuffle": lambda module, x, block, order: module.nn.functional.pixel_unshuffle(x, block),
    "triu": call("triu", "offset"),
    "tril": call("tril", "offset"),
    "diag": call("diag", "offset"),
}


def _torch_slice(torch, x, starts, stops):
    for axis, (start, stop) in enumerate(zip(starts, stops)):
        start %= x.shape[axis]
        x = torch.narrow(x, axis, start, stop - start)
    return x


def _torch_pad(torch, x, pads, mode, value):
    filled = (value,) if mode == "constant" else ()
    return torch.nn.functional.pad(x, tuple(_innermost_first(pads)), mode, *filled)


TORCH.add(
    {
        **ALIKE,
        **TORCH_AND_PADDLE,
        "transpose": call("permute", "axes"),
        "unsqueeze": _one_by_one(lambda torch, x, axis: torch.unsqueeze(x, axis)),
        "shape": lambda torch, x: torch.tensor(x.shape),
        "expand": call("broadcast_to", "shape"),
        "unfold": functional("unfold", "kernel", "dilation", "padding", "stride"),
        "slice": _torch_slice,
        "strided_slice": lambda torch, x, **bounds: x[spans(**bounds)],
        "split": call("split", "sizes", "axis"),
        "concat": lambda torch, *xs, axis: torch.cat(xs, axis),
        "stack": lambda torch, *xs, axis: torch.stack(xs, axis),
        "unstack": call("unbind", "axis"),
        "meshgrid": call("meshgrid"),
        "pad": _torch_pad,
    }
)


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


def _tf_slice(tf, x, starts, stops):
    begins = [start % size for start, size in zip(starts, x.shape)]
    return tf.slice(x, begins, [stop - begin for begin, stop in zip(begins, stops)])


def _tf_pad(tf, x, pads, mode, value):
    return tf.pad(x, [(0, 0)] * (x.ndim - len(pads)) + list(pads), mode.upper(), value)


def _tf_band(tf, x, offset, upper):
    """The triangle on one side of a diagonal, from bands about the main diagonal."""
    offset = max(-x.shape[-2], min(offset, x.shape[-1]))  # TensorFlow refuses diagonals outside the matrix
    if upper:
        return tf.linalg.band_part(x, -offset, -1) if offset <= 0 else x - tf.linalg.band_part(x, -1, offset - 1)
    return tf.linalg.band_part(x, -1, offset) if offset >= 0 else x - tf.linalg.band_part(x, -offset - 1, -1)


def _tf_diag(tf, x, offset):
    return tf.linalg.diag(x, k=offset) if x.ndim == 1 else tf.linalg.diag_part(x, k=offset)


TENSORFLOW.add(
    {
        **ALIKE,
        "transpose": call("transpose", "axes"),
        "unsqueeze": _one_by_one(lambda tf, x, axis: tf.expand_dims(x, axis)),
        "flatten": _tf_flatten,
        "shape": lambda tf, x: tf.shape(x, out_type=tf.int64),
        "expand": call("broadcast_to", "shape"),
        "flip": call("reverse", "axis"),
        "depth_to_space": lambda tf, x, block, order: channels_first(
            tf, tf.nn.depth_to_space(channels_last(tf, x), block)
        ),
        "space_to_depth": lambda tf, x, block, order: channels_first(
            tf, tf.nn.space_to_depth(channels_last(tf, x), block)
        ),
        "unfold": _tf_unfold,
        "slice": _tf_slice,
        "strided_slice": call("strided_slice", "starts", "stops", "steps"),
        "split": call("split", "sizes", "axis"),
        "concat": lambda tf, *xs, axis: tf.concat(xs, axis),
        "stack": lambda tf, *xs, axis: tf.stack(xs, axis),
        "unstack": call("unstack"),
        "meshgrid": call("meshgrid"),
        "pad": refusing(
            _tf_pad, lambda x, mode, **_: mode not in ("constant", "reflect"), "tf.pad has two modes of the four"
        ),
        "triu": lambda tf, x, offset: _tf_band(tf, x, offset, upper=True),
        "tril": lambda tf, x, offset: _tf_band(tf, x, offset, upper=False),
        "diag": _tf_diag,
    }
)


def _paddle_strided_slice(paddle, x, starts, stops, steps):
    return paddle.strided_slice(x, list(range(x.ndim)), list(starts), list(stops), list(steps))


def _paddle_unfold(paddle, x, kernel, stride, padding, dilation):
    return paddle.nn.functional.unfold(x, list(kernel), list(stride), list(padding), list(dilation))


def _paddle_pad(paddle, x, pads, mode, value):
    return paddle.nn.functional.pad(x, _innermost_first(pads), mode, value, "NCHW")


PADDLE.add(
    {
        **ALIKE,
        **TORCH_AND_PADDLE,
        "transpose": call("transpose", "axes"),
        "unsqueeze": call("unsqueeze", "axis"),
        "shape": lambda paddle, x: paddle.cast(paddle.shape(x), "int64"),
        "expand": call("expand", "shape"),
        "unfold": _paddle_unfold,
        "slice": lambda paddle, x, starts, stops: paddle.slice(x, list(range(x.ndim)), starts, stops),
        "strided_slice": _paddle_strided_slice,
        "split": lambda paddle, x, sizes, axis: paddle.split(x, list(sizes), axis),
        "concat": lambda paddle, *xs, axis: paddle.concat(list(xs), axis),
        "stack": lambda paddle, *xs, axis: paddle.stack(list(xs), axis),
        "unstack": call("unstack", "axis"),
        "meshgrid": refusing(
            lambda paddle, *xs, indexing: paddle.meshgrid(*xs),
            lambda *xs, indexing: indexing != "ij",
            "paddle.meshgrid indexes by matrix rows",
        ),
        "pad": _paddle_pad,
    }
)
