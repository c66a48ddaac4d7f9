"""Witnesses of recurrent layers, of images between their points and of boxes."""

from __future__ import annotations

from typing import Any, Tuple

from tests.unit.oracle.witnesses.witness import PADDLE, TORCH

_PLAIN = (True, 1, 0.0, False, False, False)
"""With biases, one layer, no dropout, not training, one direction, steps first."""


def _torch_lstm(torch: Any, x: Any, hidden: Any, cell: Any, *weights: Any) -> Any:
    return torch._VF.lstm(x, (hidden, cell), list(weights), *_PLAIN)


TORCH.add(
    {
        "lstm": _torch_lstm,
        "gru": lambda torch, x, hidden, *weights: torch._VF.gru(x, hidden, list(weights), *_PLAIN),
        "simple_rnn": lambda torch, x, hidden, *weights: torch._VF.rnn_tanh(x, hidden, list(weights), *_PLAIN),
        "grid_sample": lambda torch, x, grid, align_corners, border: torch.nn.functional.grid_sample(
            x, grid, "bilinear", border, align_corners
        ),
    }
)


def _paddle_boxes(
    paddle: Any, x: Any, image: Any, anchors: Tuple[int, ...], classes: int, threshold: float, step: int,
    zoom: float, clip: bool,
) -> Any:  # fmt: skip
    return paddle.vision.ops.yolo_box(x, image, list(anchors), classes, threshold, step, clip_bbox=clip, scale_x_y=zoom)


PADDLE.add(
    {
        "grid_sample": lambda paddle, x, grid, align_corners, border: paddle.nn.functional.grid_sample(
            x, grid, "bilinear", border, align_corners
        ),
        "yolo_box": _paddle_boxes,
    }
)
