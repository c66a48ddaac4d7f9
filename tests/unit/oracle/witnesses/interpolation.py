"""Witnesses of interpolation, of images between their points, of boxes and of recurrent layers."""

from __future__ import annotations

from tests.unit.oracle.witnesses.witness import (
    PADDLE,
    TENSORFLOW,
    TORCH,
    Unsupported,
    channels_first,
    channels_last,
    refusing,
)

_PLAIN = (True, 1, 0.0, False, False, False)
"""A recurrent layer with biases, one layer, no dropout, not training, one direction, steps first."""


def _grid_sample(module, x, grid, align_corners, border):
    return module.nn.functional.grid_sample(x, grid, "bilinear", border, align_corners)


def _torch_nearest(torch, x, size, coordinates):
    mode = {"half_pixel": "nearest-exact", "asymmetric": "nearest"}[coordinates]
    return torch.nn.functional.interpolate(x, size, mode=mode)


def _torch_linear(torch, x, size, coordinates):
    corners = coordinates == "align_corners"
    return torch.nn.functional.interpolate(x, size, mode="bilinear", align_corners=corners)


TORCH.add(
    {
        "interpolate_nearest": _torch_nearest,
        "interpolate_linear": refusing(
            _torch_linear,
            lambda x, size, coordinates: coordinates == "asymmetric",
            "torch interpolates between pixel centres or corners",
        ),
        "grid_sample": _grid_sample,
        "lstm": lambda torch, x, hidden, cell, *weights: torch._VF.lstm(x, (hidden, cell), list(weights), *_PLAIN),
        "gru": lambda torch, x, hidden, *weights: torch._VF.gru(x, hidden, list(weights), *_PLAIN),
        "simple_rnn": lambda torch, x, hidden, *weights: torch._VF.rnn_tanh(x, hidden, list(weights), *_PLAIN),
    }
)


def _tf_nearest(tf, x, size, coordinates):
    half = coordinates == "half_pixel"
    y = tf.raw_ops.ResizeNearestNeighbor(images=channels_last(tf, x), size=size, half_pixel_centers=half)
    return channels_first(tf, y)


def _tf_linear(tf, x, size, coordinates):
    corners, half = coordinates == "align_corners", coordinates == "half_pixel"
    image = channels_last(tf, x)
    y = tf.raw_ops.ResizeBilinear(images=image, size=size, align_corners=corners, half_pixel_centers=half)
    return channels_first(tf, y)


TENSORFLOW.add(
    {
        "interpolate_nearest": _tf_nearest,
        "interpolate_linear": refusing(
            _tf_linear, lambda x, **_: x.dtype.name != "float32", "TensorFlow resizes in float32 only"
        ),
    }
)


def _paddle_linear(paddle, x, size, coordinates):
    if x.dtype != paddle.float32:
        raise Unsupported("Paddle holds the ratio of sizes in float32")
    if 1 in size and coordinates != "align_corners":
        raise Unsupported("Paddle takes the first element when it resizes to one")
    corners, mode = coordinates == "align_corners", 1 if coordinates == "asymmetric" else 0
    return paddle.nn.functional.interpolate(x, list(size), mode="bilinear", align_corners=corners, align_mode=mode)


def _paddle_boxes(paddle, x, image, anchors, classes, threshold, step, zoom, clip):
    return paddle.vision.ops.yolo_box(x, image, list(anchors), classes, threshold, step, clip_bbox=clip, scale_x_y=zoom)


PADDLE.add(
    {
        "interpolate_nearest": refusing(
            lambda paddle, x, size, coordinates: paddle.nn.functional.interpolate(x, list(size), mode="nearest"),
            lambda x, size, coordinates: coordinates != "asymmetric",
            "paddle's nearest neighbour is asymmetric",
        ),
        "interpolate_linear": _paddle_linear,
        "grid_sample": _grid_sample,
        "yolo_box": _paddle_boxes,
    }
)
