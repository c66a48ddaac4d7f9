"""Ops that Paddle alone has, or that do with it what the other frameworks do not do.

An IPU build has handlers for none of them, so the emulator alone is asked.
"""

from __future__ import annotations

import warnings
from typing import Any, Dict

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.op import OPS
from ipu_conformance.oracle.sample import Sample
from ipu_conformance.oracle.tolerance.ops import for_outputs

from ..device import compiled, held, started

pytestmark = pytest.mark.emulator

SCORES = np.array([[0, 3, 1, 2], [4, 3, 2, 1], [1, 2, 3, 4], [2, 0, 1, 3]], np.float32)
LABELS = np.array([[1], [1], [3], [1]])


@pytest.mark.parametrize(("k", "shares"), [(1, [0.5, 0.25]), (2, [0.75, 0.25]), (4, [1.0, 1.0])])
def test_the_share_of_labels_among_the_best(paddle: Any, static: Any, k: int, shares: Any) -> None:
    """Of four samples so many have their label among the k largest scores; every micro-batch has its own share."""
    scores, label = static.data("scores", [4, 4], "float32"), static.data("label", [4, 1], "int64")
    accuracy = paddle.metric.accuracy(scores, label, k=k)
    device = compiled(paddle, [accuracy], feeds=["scores", "label"], batches_per_step=2)
    (fetched,) = device.run(np.concatenate([SCORES, SCORES]), np.concatenate([LABELS, LABELS[::-1]]))

    check.identical(actual=fetched.ravel(), expected=np.array(shares, np.float32), what="the accuracy")


SPACES: Dict[str, Any] = {
    "up": (0.0, 1.0, 5, [0, 0.25, 0.5, 0.75, 1]),
    "down": (3.0, -1.0, 5, [3, 2, 1, 0, -1]),
    "one": (2.0, 5.0, 1, [2]),
}


@pytest.mark.parametrize("space", SPACES)
def test_numbers_at_equal_distances(paddle: Any, static: Any, space: str) -> None:
    """The first and the last number are those that were asked for, and the others lie evenly between."""
    start, stop, count, numbers = SPACES[space]
    x = static.data("x", [1], "float32")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Paddle warns of an attribute that it sets itself
        out = x * paddle.linspace(start, stop, count)
    (fetched,) = compiled(paddle, [out], size=1).run(np.array([2], np.float32))

    check.identical(actual=fetched, expected=2 * np.array(numbers, np.float32), what="twice the numbers of linspace")


def test_rows_that_meet_are_added_up(paddle: Any, static: Any) -> None:
    """Without overwriting, a row that is named is emptied and gets the sum of what is written to it."""
    x = static.data("x", [4, 2], "float32")
    index, updates = static.data("index", [3], "int64"), static.data("updates", [3, 2], "float32")
    out = paddle.scatter(x, index, updates, overwrite=False)
    rows = np.array([[1, 2], [4, 8], [16, 32]], np.float32)
    device = compiled(paddle, [out], feeds=["x", "index", "updates"])
    (fetched,) = device.run(np.arange(8, dtype=np.float32).reshape(4, 2), np.array([2, 0, 2]), rows)

    expected = np.array([[4, 8], [2, 3], [17, 34], [6, 7]], np.float32)
    check.identical(actual=fetched, expected=expected, what="the rows after the scatter")


def test_a_number_is_written_to_a_part(paddle: Any, static: Any) -> None:
    """A number goes to every place of a part, and the rest stays."""
    x = static.data("x", [2, 3], "float32")
    out = static.setitem(x, (slice(None), slice(1, None)), 0.5)
    (fetched,) = compiled(paddle, [out], size=2).run(np.arange(6, dtype=np.float32).reshape(2, 3))

    expected = np.array([[0, 0.5, 0.5], [3, 0.5, 0.5]], np.float32)
    check.identical(actual=fetched, expected=expected, what="the tensor that was written to")


STEPS, BATCH, FEATURES, HIDDEN = 3, 2, 4, 5


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_a_recurrent_layer_runs_and_trains(paddle: Any, static: Any, name: str) -> None:
    """A layer of Paddle's makes of every sequence what is specified, and a step changes all of its weights."""
    x = static.data("x", [BATCH, STEPS, FEATURES], "float32")
    layer = getattr(paddle.nn, name)(FEATURES, HIDDEN)
    out, _ = layer(x)
    paddle.optimizer.SGD(1.0).minimize(paddle.mean(paddle.square(out)))
    started(paddle)
    weights = [weight.name for weight in layer.parameters()]
    before = [held(paddle, weight).astype(np.float64) for weight in weights]
    device = compiled(paddle, [out], size=BATCH, training=True)
    fed = np.random.default_rng(7).uniform(-1, 1, (BATCH, STEPS, FEATURES)).astype(np.float32)
    (fetched,) = device.run(fed)
    device.sync()

    op = OPS[name.lower()]
    states = [np.zeros((1, BATCH, HIDDEN))] * (2 if name == "LSTM" else 1)
    sample = Sample((fed.swapaxes(0, 1).astype(np.float64), *states, *before))
    expected, *_ = op.forward(*sample.inputs)
    limit, *_ = for_outputs(op, sample)
    check.close(
        actual=fetched.swapaxes(0, 1), expected=expected, tolerance=limit, what="the output of the layer",
        dtype="float32",
    )  # fmt: skip
    for weight, start in zip(weights, before):
        check.differs(actual=held(paddle, weight).astype(np.float64), other=start, what=f"the weight {weight}")
