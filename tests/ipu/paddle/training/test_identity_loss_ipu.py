"""identity_loss marks the loss of a program and reduces it."""

from __future__ import annotations

from typing import Any, Callable, Union

import numpy as np
import pytest

from ipu_conformance import check

from ..device import Device, compiled, started
from ..regression import FEEDS, RATE, REDUCTIONS, START, float32, samples, step, targets

SIZE = 4


def reducing(
    paddle: Any,
    reduction: Union[int, str],
    optimizer: Any = None,
    *,
    after: Callable[[Any], Any] = lambda loss: loss,
    **options: Any,
) -> Device:
    """The exact model with a loss that identity_loss reduces, and what follows it, compiled."""
    x, y = (paddle.static.data(name, [SIZE, 2], "float32") for name in FEEDS)
    start = paddle.nn.initializer.Assign(START.astype(np.float32))
    weight = paddle.create_parameter([2], "float32", name="w", default_initializer=start)
    loss = after(paddle.incubate.identity_loss(paddle.square(x * weight - y), reduction))
    if optimizer is not None:
        optimizer.minimize(loss)
    started(paddle)
    return compiled(paddle, [loss], feeds=FEEDS, training=optimizer is not None, **options)


@pytest.mark.parametrize("named", [True, False], ids=["by name", "by number"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_loss_is_reduced(paddle: Any, static: Any, reduction: str, named: bool) -> None:
    """0 or sum, 1 or mean, 2 or none; a reduced loss has one element."""
    x, y = samples(SIZE), targets(SIZE)
    (got,) = reducing(paddle, reduction if named else REDUCTIONS[reduction]).run(x, y)
    wanted = step(START, x, y, reduction=reduction).loss

    check.shape(actual=got, expected=(SIZE, 2) if reduction == "none" else (1,), what="the loss")
    check.identical(actual=got, expected=float32(wanted), what="the loss")


@pytest.mark.parametrize("factor", [1.0, 3.0], ids=["the loss", "three times the loss"])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_gradients_begin_at_the_mark(paddle: Any, static: Any, reduction: str, factor: float) -> None:
    """Gradients are those of the reduced loss; what is made of it, and minimized, trains nothing more.

    The gradient of a sum is as many times that of a mean as there are elements (``ipu_compiler.cc``).
    """
    rate = RATE if reduction == "mean" else RATE / 8
    after: Any = (lambda loss: loss) if factor == 1.0 else (lambda loss: loss * factor)
    device = reducing(paddle, reduction, paddle.optimizer.SGD(rate), after=after)
    weight = START
    for turn in range(2):
        x, y = samples(SIZE, turn * SIZE), targets(SIZE, turn * SIZE)
        wanted = step(weight, x, y, rate=rate, reduction=reduction)
        (got,) = device.run(x, y)
        check.identical(actual=got, expected=float32(factor * wanted.loss), what=f"what run {turn} fetches")
        weight = wanted.weight
    device.sync()

    check.identical(actual=device.value("w"), expected=float32(weight), what="the weight")


@pytest.mark.emulator
def test_a_marked_loss_of_several_elements_is_refused(paddle: Any, static: Any) -> None:
    """A mean behind the mark does not help: gradients begin at the mark, and PopART's final loss is a scalar.

    Its sources fill in one number there, whatever the shape, and no document says that it looks.
    """
    with check.raises(RuntimeError, match="one element", what="a mark without a reduction before a mean"):
        reducing(paddle, "none", paddle.optimizer.SGD(RATE), after=paddle.mean)


@pytest.mark.parametrize("batches", [3, 5])
def test_every_micro_batch_has_its_own_loss(paddle: Any, static: Any, batches: int) -> None:
    """Reduction is within a micro-batch: a run of several returns as many losses."""
    x, y = samples(SIZE * batches), targets(SIZE * batches)
    (got,) = reducing(paddle, "sum", batches_per_step=batches).run(x, y)
    parts = zip(np.split(x, batches), np.split(y, batches))

    expected = float32(np.stack([step(START, *part, reduction="sum").loss for part in parts]))
    check.identical(actual=got, expected=expected, what="the losses of the micro-batches")


@pytest.mark.parametrize("wrong", [3, -1, "median"])
def test_an_unknown_reduction_is_refused(paddle: Any, static: Any, wrong: Any) -> None:
    """There are three reductions."""
    match = "Unsupported reduction" if wrong == "median" else f"Value {wrong} is not|the reduction {wrong}"
    with check.raises(Exception, match=match, what=f"the reduction {wrong}"):
        reducing(paddle, wrong)


def test_the_last_mark_counts(paddle: Any, static: Any) -> None:
    """Of several marks gradients begin at the one that comes last (``ipu_compiler.cc``)."""
    device = reducing(
        paddle, "mean", paddle.optimizer.SGD(RATE), after=lambda loss: paddle.incubate.identity_loss(loss * 3.0, "none")
    )
    x, y = samples(SIZE), targets(SIZE)
    device.run(x, y)
    device.sync()

    wanted = step(START, x, y, rate=3 * RATE, reduction="mean").weight
    check.identical(actual=device.value("w"), expected=float32(wanted), what="the weight")
