"""identity_loss marks the loss of a program and reduces it."""

from __future__ import annotations

from typing import Any, Union

import numpy as np
import pytest

from ..ops import dyadic
from ..ops.dyadic import REDUCTIONS

SIZE = 4


def build(paddle: Any, reduction: Union[int, str], optimizer: Any = None) -> Any:
    """The exact model with a loss that identity_loss reduces."""
    static = paddle.static
    x, y = static.data("x", [SIZE, 2], "float32"), static.data("y", [SIZE, 2], "float32")
    start = paddle.nn.initializer.Assign(dyadic.START.astype(np.float32))
    weight = paddle.create_parameter([2], "float32", name="w", default_initializer=start)
    loss = paddle.incubate.identity_loss(paddle.square(x * weight - y), reduction)
    if optimizer is not None:
        optimizer.minimize(loss)
    built = dyadic.Static(static.default_main_program(), static.default_startup_program(), ["x", "y"], loss, loss, [])
    dyadic.start(paddle, built)
    return built


@pytest.mark.parametrize("named", [True, False], ids=["by name", "by number"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_loss_is_reduced(paddle: Any, static: Any, reduction: str, named: bool) -> None:
    """0 or sum, 1 or mean, 2 or none; a reduced loss has one element."""
    built = build(paddle, reduction if named else REDUCTIONS[reduction])
    device = dyadic.compiled(paddle, built.main, built.feeds, [built.loss], is_training=False)
    (got,) = device.run(x=dyadic.samples(SIZE), y=dyadic.targets(SIZE))
    wanted = dyadic.step(dyadic.START, dyadic.samples(SIZE), dyadic.targets(SIZE), reduction=reduction).loss

    assert got.shape == wanted.shape == ((SIZE, 2) if reduction == "none" else (1,))
    assert got.tolist() == dyadic.float32(wanted).tolist()


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_training_follows_the_reduced_loss(paddle: Any, static: Any, reduction: str) -> None:
    """The gradient of a sum is as many times that of a mean as there are elements."""
    rate = dyadic.RATE if reduction == "mean" else dyadic.RATE / 8
    built = build(paddle, reduction, paddle.optimizer.SGD(rate))
    device = dyadic.compiled(paddle, built.main, built.feeds, [built.loss], is_training=True)
    weight = dyadic.START
    for turn in range(2):
        x, y = dyadic.samples(SIZE, turn * SIZE), dyadic.targets(SIZE, turn * SIZE)
        wanted = dyadic.step(weight, x, y, rate=rate, reduction=reduction)
        (got,) = device.run(x=x, y=y)
        assert got.tolist() == dyadic.float32(wanted.loss).tolist()
        weight = wanted.weight
    device.weights_to_host()

    assert dyadic.held(paddle).tolist() == dyadic.float32(weight).tolist()


@pytest.mark.parametrize("batches", [3, 5])
def test_every_micro_batch_has_its_own_loss(paddle: Any, static: Any, batches: int) -> None:
    """Reduction is within a micro-batch: a run of several returns as many losses."""
    built = build(paddle, "sum")
    device = dyadic.compiled(paddle, built.main, built.feeds, [built.loss], is_training=False, batches_per_step=batches)
    x, y = dyadic.samples(SIZE * batches), dyadic.targets(SIZE * batches)
    (got,) = device.run(x=x, y=y)
    parts = zip(np.split(x, batches), np.split(y, batches))

    assert got.shape == (batches, 1)
    assert got.reshape(-1).tolist() == [
        float(dyadic.step(dyadic.START, *part, reduction="sum").loss[0]) for part in parts
    ]


@pytest.mark.parametrize(
    ("wrong", "sentence"), [(3, "Value 3 is not"), (-1, "Value -1 is not"), ("median", "Unsupported reduction")]
)
def test_an_unknown_reduction_is_refused(paddle: Any, static: Any, wrong: Any, sentence: str) -> None:
    """There are three reductions."""
    with pytest.raises(Exception, match=sentence):
        build(paddle, wrong)
