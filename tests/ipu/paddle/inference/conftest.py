"""What the cases of paddle.inference share."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

from ..device import save_model
from ..regression import float32

WEIGHTS = np.array([[1.0, -0.5, 2.0], [0.25, 1.5, -1.0]], np.float32)
"""Two features to three."""


def exact(x: np.ndarray) -> np.ndarray:
    """What the saved model makes of samples; float32 holds it exactly."""
    hidden = np.maximum(x.astype(np.float64) @ WEIGHTS.astype(np.float64), 0)
    return float32(hidden * hidden + 1)


@pytest.fixture
def saved(paddle: Any, static: Any, tmp_path: Path) -> Callable[[int], str]:
    """A function that saves the model for a batch size, -1 for any, and gives the prefix of its files."""

    def save(size: int) -> str:
        x = static.data("x", [size, 2], "float32")
        weight = paddle.create_parameter([2, 3], "float32", default_initializer=paddle.nn.initializer.Assign(WEIGHTS))
        hidden = paddle.nn.functional.relu(paddle.matmul(x, weight))
        return save_model(paddle, tmp_path, [x], [paddle.square(hidden) + 1.0])

    return save
