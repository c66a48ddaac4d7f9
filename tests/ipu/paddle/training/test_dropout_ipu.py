"""Dropouts and random numbers of a program: masks of their own, the same when a stage goes forward again."""

from __future__ import annotations

from typing import Any, Callable, List, Mapping

import numpy as np
import pytest

from ipu_conformance import check

from .. import exact
from ..device import Device, started
from ..exact import counts

POSITIONS = 192
HALF = 0.5
"""The rate of all: what is kept is doubled, which rounds nothing."""
STARTS = (2.0, 0.5, 1.0, 4.0)
PIPELINE_RECOMPUTATION = 3
SUM = 0
"""The type of reduction that divides by nothing."""


def dropped(paddle: Any, stages: int) -> List[Any]:
    """A chain of products and dropouts, one of each in every stage; gives the value behind each dropout."""
    value = paddle.static.data("x", [None, POSITIONS], "float32")
    values = []
    for number in range(stages):
        with paddle.static.ipu_shard_guard(number, number):
            start = paddle.nn.initializer.Constant(STARTS[number])
            weight = paddle.static.create_parameter([POSITIONS], "float32", f"w{number}", default_initializer=start)
            value = paddle.nn.functional.dropout(value * weight, HALF)
            values.append(value)
    return values


PIPELINES = {"3-stages": (counts(1, 6, 2), 3), "4-stages": (counts(1, 8, 3), 4)}


@pytest.mark.parametrize("recomputed", [True, False], ids=["recomputed", "kept"])
@pytest.mark.parametrize("name", PIPELINES)
def test_every_stage_goes_back_by_the_masks_it_went_forth_by(
    paddle: Any, static: Any, name: str, recomputed: bool
) -> None:
    """The gradient of each stage's weight is the output, which shows all masks, divided by the weight."""
    config, stages = PIPELINES[name]
    values = dropped(paddle, stages)
    with static.ipu_shard_guard(stages - 1, stages - 1):
        loss = paddle.sum(values[-1])
    paddle.optimizer.SGD(exact.RATE).minimize(loss)
    started(paddle)
    options: Any = {"auto_recomputation": PIPELINE_RECOMPUTATION} if recomputed else {}
    chosen = exact.strategy(
        paddle, config, ipus=stages, pipelined=True, random_seed=5, accumulation_and_replication_reduction_type=SUM,
        **options,
    )  # fmt: skip
    device = Device(paddle, [values[-1]], chosen)
    x = np.arange(1, 1 + config.micro_batches, dtype=np.float32)[:, np.newaxis] * np.ones(POSITIONS, np.float32)
    (out,) = device.run(x)
    device.sync()
    total = np.reshape(out, (-1, POSITIONS)).sum(axis=0)

    for number in range(stages):
        expected = STARTS[number] - np.float32(exact.RATE) * total / np.float32(STARTS[number])
        check.identical(actual=device.value(f"w{number}"), expected=expected, what=f"the weight of stage {number}")


PLACES = {
    "replicas": (counts(1, 1, 5), 3, 4),
    "micro-batches": (counts(2, 4, 3), 3, 4),
    "batches": (counts(5, 1, 2), 3, 4),
    "runs": (counts(), 4, 17),
}
"""The counts, the number of dropouts and that of runs."""


@pytest.mark.parametrize(
    "place", [pytest.param(word, marks=pytest.mark.ipus(PLACES[word][0].replicas)) for word in PLACES]
)
def test_dropouts_of_one_program_are_independent(paddle: Any, static: Any, place: str) -> None:
    """Every dropout has masks of its own, from run to run, micro-batch to micro-batch and replica to replica."""
    config, dropouts, runs = PLACES[place]
    x = static.data("x", [None, POSITIONS], "float32")
    values = [paddle.nn.functional.dropout(x, HALF) for _ in range(dropouts)]
    device = Device(paddle, values, exact.strategy(paddle, config, training=False, random_seed=7))
    ones = np.ones((config.micro_batches, POSITIONS), np.float32)
    outputs = np.stack([[np.reshape(value, (-1, POSITIONS)) for value in device.run(ones)] for _ in range(runs)])

    check.dropout_masks(masks=outputs != 0, rate=HALF, axes=("run", "dropout", "slot"), what="dropout")


DRAWN: Mapping[str, Callable[[Any, Any], Any]] = {
    "uniform": lambda paddle, x: paddle.uniform([1, POSITIONS], min=-3.0, max=3.0),
    "normal": lambda paddle, x: paddle.normal(0.0, 5.0, [1, POSITIONS]),
    "bernoulli": lambda paddle, x: paddle.bernoulli(paddle.scale(x, 0.5)) - 0.5,
}
"""Numbers of which half are above zero."""


# No document says how a device draws for several micro-batches and replicas.
@pytest.mark.emulator
@pytest.mark.ipus(3)
@pytest.mark.parametrize("name", DRAWN)
def test_drawn_numbers_follow_the_seed(paddle: Any, static: Any, name: str) -> None:
    """Each seed, run, micro-batch and replica has numbers of its own; the same seed draws the same again."""
    config, runs = counts(2, 4, 3), 3
    drawn = DRAWN[name](paddle, static.data("x", [None, POSITIONS], "float32"))
    ones = np.ones((config.micro_batches, POSITIONS), np.float32)
    by_seed = []
    for seed in (11, 12, 13, 11):
        device = Device(paddle, [drawn], exact.strategy(paddle, config, training=False, random_seed=seed))
        by_seed.append([np.reshape(device.run(ones)[0], (-1, POSITIONS)) for _ in range(runs)])

    *different, again = np.array(by_seed)
    check.identical(actual=again, expected=different[0], what=f"the {name} numbers of the first seed")
    check.dropout_masks(masks=np.array(different) > 0, rate=HALF, axes=("seed", "run", "slot"), what=name)
