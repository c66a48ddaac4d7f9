"""Witnesses of the shape ops."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from tests.unit.oracle.witnesses.witness import PADDLE, TENSORFLOW, TORCH, Row

Axes = Tuple[int, ...]


def _one_by_one(insert: Callable[[Any, Any, int], Any]) -> Row:
    """A row for a library that inserts one axis at a time."""

    def row(module: Any, x: Any, axis: Axes) -> Any:
        for a in axis:
            x = insert(module, x, a)
        return x

    return row


TORCH.add(
    {
        "reshape": lambda torch, x, shape: torch.reshape(x, shape),
        "transpose": lambda torch, x, axes: torch.permute(x, axes),
        "squeeze": lambda torch, x, axis: torch.squeeze(x, axis),
        "unsqueeze": _one_by_one(lambda torch, x, axis: torch.unsqueeze(x, axis)),
        "flatten": lambda torch, x, start, stop: torch.flatten(x, start, stop),
        "shape": lambda torch, x: torch.tensor(x.shape),
        "tile": lambda torch, x, repeats: torch.tile(x, repeats),
        "expand": lambda torch, x, shape: x.expand(shape),
        "flip": lambda torch, x, axis: torch.flip(x, axis),
        "roll": lambda torch, x, shift, axis: torch.roll(x, shift, axis),
        "pixel_shuffle": lambda torch, x, block, order: torch.pixel_shuffle(x, block),
        "pixel_unshuffle": lambda torch, x, block, order: torch.pixel_unshuffle(x, block),
        "unfold": lambda torch, x, kernel, stride, padding, dilation: torch.nn.functional.unfold(
            x, kernel, dilation, padding, stride
        ),
    }
)


def _last(tf: Any, x: Any) -> Any:
    return tf.transpose(x, [0, 2, 3, 1])


def _first(tf: Any, x: Any) -> Any:
    return tf.transpose(x, [0, 3, 1, 2])


def _tf_flatten(tf: Any, x: Any, start: int, stop: int) -> Any:
    shape = list(x.shape)
    return tf.reshape(x, [*shape[:start], -1, *shape[stop % len(shape) + 1 :]])


def _tf_unfold(tf: Any, x: Any, kernel: Axes, stride: Axes, padding: Axes, dilation: Axes) -> Any:
    padded = tf.pad(_last(tf, x), [(0, 0), *((p, p) for p in padding), (0, 0)])
    patches = tf.image.extract_patches(padded, [1, *kernel, 1], [1, *stride, 1], [1, *dilation, 1], "VALID")
    batch, rows, columns, _ = patches.shape
    # TensorFlow's columns count the channel last.
    parts = tf.reshape(patches, [batch, rows * columns, kernel[0] * kernel[1], x.shape[1]])
    return tf.reshape(tf.transpose(parts, [0, 3, 2, 1]), [batch, -1, rows * columns])


TENSORFLOW.add(
    {
        "reshape": lambda tf, x, shape: tf.reshape(x, shape),
        "transpose": lambda tf, x, axes: tf.transpose(x, axes),
        "squeeze": lambda tf, x, axis: tf.squeeze(x, axis),
        "unsqueeze": _one_by_one(lambda tf, x, axis: tf.expand_dims(x, axis)),
        "flatten": _tf_flatten,
        "shape": lambda tf, x: tf.shape(x, out_type=tf.int64),
        "tile": lambda tf, x, repeats: tf.tile(x, repeats),
        "expand": lambda tf, x, shape: tf.broadcast_to(x, shape),
        "flip": lambda tf, x, axis: tf.reverse(x, axis),
        "roll": lambda tf, x, shift, axis: tf.roll(x, shift, axis),
        "depth_to_space": lambda tf, x, block, order: _first(tf, tf.nn.depth_to_space(_last(tf, x), block)),
        "space_to_depth": lambda tf, x, block, order: _first(tf, tf.nn.space_to_depth(_last(tf, x), block)),
        "unfold": _tf_unfold,
    }
)


PADDLE.add(
    {
        "reshape": lambda paddle, x, shape: paddle.reshape(x, shape),
        "transpose": lambda paddle, x, axes: paddle.transpose(x, axes),
        "squeeze": lambda paddle, x, axis: paddle.squeeze(x, axis),
        "unsqueeze": lambda paddle, x, axis: paddle.unsqueeze(x, axis),
        "flatten": lambda paddle, x, start, stop: paddle.flatten(x, start, stop),
        "shape": lambda paddle, x: paddle.cast(paddle.shape(x), "int64"),
        "tile": lambda paddle, x, repeats: paddle.tile(x, repeats),
        "expand": lambda paddle, x, shape: paddle.expand(x, shape),
        "flip": lambda paddle, x, axis: paddle.flip(x, axis),
        "roll": lambda paddle, x, shift, axis: paddle.roll(x, shift, axis),
        "pixel_shuffle": lambda paddle, x, block, order: paddle.nn.functional.pixel_shuffle(x, block),
        "pixel_unshuffle": lambda paddle, x, block, order: paddle.nn.functional.pixel_unshuffle(x, block),
        "unfold": lambda paddle, x, kernel, stride, padding, dilation: paddle.nn.functional.unfold(
            x, list(kernel), list(stride), list(padding), list(dilation)
        ),
    }
)
