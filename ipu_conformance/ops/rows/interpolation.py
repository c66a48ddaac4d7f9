"""Interpolation, images between their points, and boxes."""

from __future__ import annotations

from ipu_conformance.errors import Inexpressible
from ipu_conformance.ops.row import TABLE, Missing, Row, channels_first, channels_last, refusing

_BY_RANK = {1: ("linear", "NCW"), 2: ("bilinear", "NCHW"), 3: ("trilinear", "NCDHW")}
"""What linear interpolation over so many axes is called, and its layout in Paddle."""


def _grid_sample(module, x, grid, align_corners, border):
    return module.nn.functional.grid_sample(x, grid, "bilinear", border, align_corners)


def _torch_linear(torch, x, size, coordinates):
    mode, _ = _BY_RANK[len(size)]
    return torch.nn.functional.interpolate(x, size, mode=mode, align_corners=coordinates == "align_corners")


def _tf_nearest(tf, x, size, coordinates):
    half = coordinates == "half_pixel"
    y = tf.raw_ops.ResizeNearestNeighbor(images=channels_last(tf, x), size=size, half_pixel_centers=half)
    return channels_first(tf, y)


def _tf_linear(tf, x, size, coordinates):
    if len(size) != 2:
        raise Inexpressible("TensorFlow resizes images of two axes")
    corners, half = coordinates == "align_corners", coordinates == "half_pixel"
    image = channels_last(tf, x)
    y = tf.raw_ops.ResizeBilinear(images=image, size=size, align_corners=corners, half_pixel_centers=half)
    return channels_first(tf, tf.cast(y, x.dtype))  # it is float32 whatever the image is


def _paddle_linear(paddle, x, size, coordinates):
    if 1 in size and coordinates != "align_corners":
        raise Inexpressible("Paddle takes the first element when it resizes to one")
    if coordinates == "asymmetric":
        raise Inexpressible("the handler of an IPU build of Paddle does not read align_mode")
    mode, layout = _BY_RANK[len(size)]
    corners = coordinates == "align_corners"
    return paddle.nn.functional.interpolate(x, list(size), mode=mode, align_corners=corners, data_format=layout)


def _paddle_boxes(paddle, x, image, anchors, classes, threshold, step, zoom, clip):
    return paddle.vision.ops.yolo_box(x, image, list(anchors), classes, threshold, step, clip_bbox=clip, scale_x_y=zoom)


TABLE.add(
    Row(
        "interpolate_nearest",
        torch=refusing(
            lambda torch, x, size, coordinates: torch.nn.functional.interpolate(x, size, mode="nearest"),
            lambda x, size, coordinates: coordinates != "asymmetric",
            "PopTorch has no handler for the mode nearest-exact",
        ),
        tensorflow=_tf_nearest,
        paddle=refusing(
            lambda paddle, x, size, coordinates: paddle.nn.functional.interpolate(x, list(size), mode="nearest"),
            lambda x, size, coordinates: coordinates != "asymmetric",
            "Paddle's nearest neighbour is asymmetric",
        ),
    ),
    Row(
        "interpolate_linear",
        torch=refusing(
            _torch_linear,
            lambda x, size, coordinates: coordinates == "asymmetric",
            "torch interpolates between pixel centres or corners",
        ),
        tensorflow=_tf_linear,
        paddle=_paddle_linear,
    ),
    Row("grid_sample", _grid_sample, Missing("TensorFlow has no sampling by a grid of points"), _grid_sample),
    Row(
        "yolo_box",
        torch=Missing("PyTorch has no decoding of a detector's boxes"),
        tensorflow=Missing("TensorFlow has no decoding of a detector's boxes"),
        paddle=_paddle_boxes,
    ),
)
