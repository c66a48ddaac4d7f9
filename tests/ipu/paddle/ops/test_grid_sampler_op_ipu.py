"""Images between their points, their windows, their volumes at another size, and the boxes of a detector."""

from __future__ import annotations

from typing import Any, Dict, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle.ops.layers.sampling import between_pixels
from ipu_conformance.oracle.sample import Chooser

from .op_test_ipu import Draw, case, forward_and_gradient, values


def _sampled(paddle: Any, x: Any, grid: Any, align_corners: bool, border: str) -> Any:
    return paddle.nn.functional.grid_sample(x, grid, "bilinear", border, align_corners)


def _grid(corners: bool) -> Draw:
    return lambda chooser: between_pixels(chooser, (2, 3, 2), (5, 4), corners)


def _unfolded(
    paddle: Any, x: Any, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> Any:
    return paddle.nn.functional.unfold(x, list(kernel), list(stride), list(padding), list(dilation))


def _volume(paddle: Any, x: Any, size: Sequence[int], coordinates: str) -> Any:
    corners = coordinates == "align_corners"
    resize = paddle.nn.functional.interpolate
    return resize(x, list(size), mode="trilinear", align_corners=corners, data_format="NCDHW")


def _boxes(
    paddle: Any, x: Any, image: Any, anchors: Tuple[int, ...], classes: int, threshold: float, step: int, zoom: float,
    clip: bool,
) -> Any:  # fmt: skip
    return paddle.vision.ops.yolo_box(x, image, list(anchors), classes, threshold, step, clip_bbox=clip, scale_x_y=zoom)


def _predicted(chooser: Chooser) -> np.ndarray:
    """Two anchors and three classes; no confidence is near one half."""
    x = values(1, 2, 8, 3, 2)(chooser)
    x[:, :, 4] = values(1, 2, 3, 2, avoid=[0.0])(chooser)
    return x.reshape(1, 16, 3, 2)


def _image(chooser: Chooser) -> np.ndarray:
    return chooser.integers((1, 2), 16, 64).astype(np.int32)


BOXES: Dict[str, Any] = {"anchors": (10, 13, 16, 30), "classes": 3, "threshold": 0.5, "step": 8}
IMAGE, VOLUME = values(2, 3, 4, 5), values(1, 2, 2, 3, 4)

CASES = (
    case("grid_sample", _sampled, IMAGE, _grid(True), align_corners=True, border="zeros"),
    case("grid_sample", _sampled, IMAGE, _grid(False), name="grid_sample-border", align_corners=False,
         border="border"),
    case("unfold", _unfolded, values(2, 3, 5, 6), kernel=(2, 3), stride=(2, 1), padding=(1, 0), dilation=(1, 2),
         declared=True),
    case("interpolate_linear", _volume, VOLUME, name="trilinear", size=(4, 5, 3), coordinates="half_pixel",
         declared=True),
    case("interpolate_linear", _volume, VOLUME, name="trilinear-corners", size=(4, 5, 3), coordinates="align_corners",
         declared=True),
    case("yolo_box", _boxes, _predicted, _image, zoom=1.0, clip=True, **BOXES),
    case("yolo_box", _boxes, _predicted, _image, name="yolo_box-zoomed", zoom=1.5, clip=False, **BOXES),
)  # fmt: skip

test_forward, test_gradient = forward_and_gradient(CASES)
