"""The model runtime: with a timeout, requests may be smaller than the batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from .. import regression
from ..device import Device, compiled, predicted, predictor_config
from ..regression import FEEDS, float32, samples, targets

SIZE = 4
TIMEOUT = 5.0


def serving(paddle: Any, *, timeout: float = TIMEOUT, batches: int = 1) -> Device:
    """A program of two inputs that is served by the model runtime."""
    x, y = (paddle.static.data(name, [SIZE, 2], "float32") for name in FEEDS)
    options: Any = {"enable_model_runtime_executor": True, "timeout_ms": timeout, "batches_per_step": batches}
    return compiled(paddle, [paddle.square(x) + y], feeds=FEEDS, **options)


def exact(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What the program makes of samples."""
    return float32(x.astype(np.float64) ** 2 + y)


@pytest.mark.parametrize(
    ("count", "timeout", "batches"),
    [
        (1, TIMEOUT, 1), (2, TIMEOUT, 1), (3, TIMEOUT, 1), (SIZE, TIMEOUT, 1), (SIZE, 0.0, 1),
        (1, TIMEOUT, 3), (5, TIMEOUT, 3), (11, TIMEOUT, 3), (12, TIMEOUT, 3),
    ],
)  # fmt: skip
def test_a_smaller_batch_is_completed(paddle: Any, static: Any, count: int, timeout: float, batches: int) -> None:
    """With a timeout a request of fewer samples gets as many answers; a full batch needs no timeout.

    The first samples of a step of several batches fill its micro-batches in order.
    """
    x, y = samples(count), targets(count)
    (out,) = serving(paddle, timeout=timeout, batches=batches).run(x, y)
    shape = (batches, SIZE, 2) if count == batches * SIZE and batches > 1 else (count, 2)

    check.identical(actual=out, expected=exact(x, y).reshape(shape), what="the output")


WRONG: Dict[str, Tuple[float, int, int]] = {
    "one-in-no-time": (0.0, 1, 1),
    "three-in-no-time": (0.0, 3, 3),
    "more": (TIMEOUT, SIZE + 1, SIZE + 1),
    "unequal": (TIMEOUT, 2, 3),
    "none": (TIMEOUT, 0, 0),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_request_that_does_not_fit_is_refused(paddle: Any, static: Any, what: str) -> None:
    """Without a timeout the batch must be full; with one, a request may not be larger, empty or uneven."""
    timeout, xs, ys = WRONG[what]
    device = serving(paddle, timeout=timeout)

    with check.raises(ValueError, match="Batch size doesn't equal", what=f"a request of {xs} and {ys} samples"):
        device.run(samples(xs), targets(ys))


def test_requests_of_all_sizes_follow_each_other(paddle: Any, static: Any) -> None:
    """No request leaves anything behind for the next."""
    device = serving(paddle)
    for turn, count in enumerate([3, 1, 4, 2]):
        x, y = samples(count, turn), targets(count, turn)
        (out,) = device.run(x, y)
        check.identical(actual=out, expected=exact(x, y), what=f"the output of request {turn}")


@pytest.mark.emulator
def test_the_model_runtime_is_for_inference(paddle: Any, static: Any) -> None:
    """A program that trains cannot be served."""
    optimizer = paddle.optimizer.SGD(regression.RATE)
    _, device = regression.trainable(paddle, optimizer, enable_model_runtime_executor=True)

    with check.raises(ValueError, match="inference", what="a training program on the model runtime"):
        device.run(samples(SIZE), targets(SIZE))


def test_a_predictor_may_be_served(paddle: Any, static: Any, tmp_path: Path) -> None:
    """ipu_enable_model_runtime_executor serves a predictor; it has no timeout, so its batch must be full."""
    prefix = regression.save_squares(paddle, tmp_path, SIZE)
    config = predictor_config(paddle, prefix, 1, SIZE, ipu_enable_model_runtime_executor=True)
    predictor = paddle.inference.create_predictor(config)

    squares = predicted(predictor, samples(SIZE))

    check.identical(actual=squares, expected=float32(samples(SIZE) ** 2), what="the square")
    with check.raises(ValueError, match="Batch size doesn't equal", what=f"{SIZE - 1} samples for a batch of {SIZE}"):
        predicted(predictor, samples(SIZE - 1))
