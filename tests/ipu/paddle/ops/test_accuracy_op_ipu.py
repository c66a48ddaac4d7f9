"""How often a label is among the best scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ..device import compiled

SCORES = np.array([[0, 3, 1, 2], [4, 3, 2, 1], [1, 2, 3, 4], [2, 0, 1, 3]], np.float32)
LABELS = np.array([[1], [1], [3], [1]])


@pytest.mark.parametrize(("k", "shares"), [(1, [0.5, 0.25]), (2, [0.75, 0.25]), (4, [1.0, 1.0])])
def test_the_share_of_labels_among_the_best(paddle: Any, static: Any, k: int, shares: Any) -> None:
    """Of four samples so many have their label among the k largest scores; every micro-batch has its own share."""
    scores, label = static.data("scores", [4, 4], "float32"), static.data("label", [4, 1], "int64")
    out = paddle.metric.accuracy(scores, label, k=k)
    device = compiled(paddle, [out], feeds=["scores", "label"], batches_per_step=2)
    (got,) = device.run(np.concatenate([SCORES, SCORES]), np.concatenate([LABELS, LABELS[::-1]]))

    assert got.ravel().tolist() == shares
