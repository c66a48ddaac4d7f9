"""Witnesses of interpolation; each framework has its own conventions for coordinates."""

from __future__ import annotations

from typing import Any, Tuple

from tests.unit.oracle.witnesses.witness import PADDLE, TENSORFLOW, TORCH, Unsupported

Size = Tuple[int, int]


@TORCH.row("interpolate_nearest")
def _torch_nearest(torch: Any, x: Any, size: Size, coordinates: str) -> Any:
    mode = {"half_pixel": "nearest-exact", "asymmetric": "nearest"}[coordinates]
    return torch.nn.functional.interpolate(x, size, mode=mode)


@TORCH.row("interpolate_linear")
def _torch_linear(torch: Any, x: Any, size: Size, coordinates: str) -> Any:
    if coordinates == "asymmetric":
        raise Unsupported("torch interpolates between pixel centres or corners")
    corners = coordinates == "align_corners"
    return torch.nn.functional.interpolate(x, size, mode="bilinear", align_corners=corners)


def _tf_resized(tf: Any, x: Any, resize: Any) -> Any:
    return tf.transpose(resize(tf.transpose(x, [0, 2, 3, 1])), [0, 3, 1, 2])


@TENSORFLOW.row("interpolate_nearest")
def _tf_nearest(tf: Any, x: Any, size: Size, coordinates: str) -> Any:
    half = coordinates == "half_pixel"
    op = tf.raw_ops.ResizeNearestNeighbor
    return _tf_resized(tf, x, lambda image: op(images=image, size=size, half_pixel_centers=half))


@TENSORFLOW.row("interpolate_linear")
def _tf_linear(tf: Any, x: Any, size: Size, coordinates: str) -> Any:
    if x.dtype != tf.float32:
        raise Unsupported("TensorFlow resizes in float32 only")
    attributes = {
        "align_corners": coordinates == "align_corners",
        "half_pixel_centers": coordinates == "half_pixel",
    }
    return _tf_resized(tf, x, lambda image: tf.raw_ops.ResizeBilinear(images=image, size=size, **attributes))


@PADDLE.row("interpolate_nearest")
def _paddle_nearest(paddle: Any, x: Any, size: Size, coordinates: str) -> Any:
    if coordinates != "asymmetric":
        raise Unsupported("paddle's nearest neighbour is asymmetric")
    return paddle.nn.functional.interpolate(x, list(size), mode="nearest")


@PADDLE.row("interpolate_linear")
def _paddle_linear(paddle: Any, x: Any, size: Size, coordinates: str) -> Any:
    if x.dtype != paddle.float32:
        raise Unsupported("Paddle holds the ratio of sizes in float32")
    if 1 in size and coordinates != "align_corners":
        raise Unsupported("Paddle takes the first element when it resizes to one")
    attributes = {
        "align_corners": coordinates == "align_corners",
        "align_mode": 1 if coordinates == "asymmetric" else 0,
    }
    return paddle.nn.functional.interpolate(x, list(size), mode="bilinear", **attributes)
