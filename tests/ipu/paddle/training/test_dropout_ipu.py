"""Dropout: masks come from the seed, differ from micro-batch to micro-batch, and do not depend on the cut."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ipu_conformance import check, nets
from ipu_conformance.nets import Data, distinct_micro_batches
from ipu_conformance.run import learning_rate

from ...training import Runs, cut, inference
from .config import counted

CHANCE = counted(2, 5, 4)

pytestmark = pytest.mark.ipus(4)


@pytest.mark.ipus(16)
@pytest.mark.parametrize("kind", ["pipelined", "sharded"])
@pytest.mark.parametrize("stages", [2, 3])
def test_dropout_does_not_depend_on_the_cut(runs: Runs, stages: int, kind: str) -> None:
    """With one seed a net in stages drops what the whole net drops, and leaves the same bits."""
    check.runs_identical(
        actual=runs.train("dropout_net", cut("dropout_net", CHANCE, stages, kind)),
        expected=runs.train("dropout_net", CHANCE),
    )


def test_a_seed_decides_what_is_dropped(runs: Runs) -> None:
    """The same seed of the device drops the same values again, another drops others."""
    net = nets.dropout_net()
    one, other = (runs.train(net.name, CHANCE, options={"random_seed": seed}) for seed in (3, 4))
    again = runs.driver.train(net, CHANCE, distinct_micro_batches(net, CHANCE), options={"random_seed": 3})

    check.runs_identical(actual=again, expected=one)
    assert not np.array_equal(one.losses[0], other.losses[0])


def test_equal_micro_batches_are_dropped_differently(runs: Runs) -> None:
    """Micro-batches of the same samples, on all replicas and in two runs, give losses that all differ."""
    net, config = nets.dropout_net(), replace(CHANCE, learning_rate=learning_rate(base=0.0), steps=2)
    data, size, count = distinct_micro_batches(net, config), config.micro_batch, config.micro_batches
    first = Data(data.inputs[:1, :size], data.labels[:1, :size])
    same = Data(np.tile(first.inputs, (2, count, 1)), np.tile(first.labels, (2, count)))
    losses = np.ravel(runs.driver.train(net, config, same).losses)

    assert len(losses) == 2 * count == len(set(losses.tolist()))


def test_nothing_is_dropped_in_inference(runs: Runs) -> None:
    """Without training the output is the oracle's, which drops nothing."""
    runs.compare_inference("dropout_net", inference(CHANCE))
