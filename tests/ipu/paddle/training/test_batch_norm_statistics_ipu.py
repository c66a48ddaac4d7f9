"""The running statistics of batch norm: they belong to a replica and move with every micro-batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from ...training import counts_id
from .. import exact
from ..device import Device, started
from ..exact import counts

MOMENTUM = 0.5
MEAN = "norm_mean"


def normalised(paddle: Any, strategy: Any, *, cut: bool = False) -> Device:
    """A program with batch norm over one channel, whose weights never change, compiled; the loss may have a stage."""
    static = paddle.static
    shards = [{"index": stage, "stage": stage} if cut else {} for stage in range(2)]
    x = static.data("x", [None, 1], "float32")
    with static.ipu_shard_guard(**shards[0]):
        out = static.nn.batch_norm(x, momentum=MOMENTUM, moving_mean_name=MEAN, moving_variance_name="norm_variance")
    with static.ipu_shard_guard(**shards[1]):
        loss = paddle.mean(paddle.square(out))
    paddle.optimizer.SGD(0.0).minimize(loss)
    started(paddle)
    return Device(paddle, [out, loss], strategy)


def moved(micro_batches: np.ndarray) -> np.ndarray:
    """The running mean after these micro-batches; powers of two keep it exact."""
    mean = np.float32(0.0)
    for values in micro_batches:
        mean = mean * np.float32(MOMENTUM) + np.float32(values.mean()) * np.float32(1 - MOMENTUM)
    return np.array([mean], np.float32)


@pytest.mark.parametrize(
    "config", [counts(), counts(3), counts(1, 4), counts(3, 2), counts(1, 1, 2), counts(2, 4, 3)], ids=counts_id
)
def test_statistics_move_with_every_micro_batch_of_a_replica(paddle: Any, static: Any, config: RunConfig) -> None:
    """The host gets replica 0's statistics: each of its micro-batches has moved them, in order, and no other's."""
    device = normalised(paddle, exact.strategy(paddle, config, micro_batch=2))
    x = np.arange(1, config.micro_batches * 2 + 1, dtype=np.float32).reshape(-1, 1) ** 2
    device.run(x)
    device.sync()
    of_replica = x.reshape(-1, config.replicas, 2)[:, 0]

    check.identical(actual=device.value(MEAN), expected=moved(of_replica), what="the running mean")


def test_statistics_stay_stale_on_the_host(paddle: Any, static: Any) -> None:
    """Statistics come home with the weights, not before."""
    device = normalised(paddle, exact.strategy(paddle, micro_batch=2))
    device.run(np.array([[4.0], [8.0]], np.float32))
    stale = device.value(MEAN)
    device.sync()

    check.identical(actual=stale, expected=np.zeros(1, np.float32), what="the running mean before the sync")
    check.identical(actual=device.value(MEAN), expected=np.full(1, 3.0, np.float32), what="the running mean")


def test_recomputing_moves_statistics_once(paddle: Any, static: Any) -> None:
    """A pipeline that recomputes a stage leaves the statistics of one that stashes it."""
    means, x = [], np.arange(1, 9, dtype=np.float32) ** 2
    for recomputation in (0, 3):
        main, startup = static.Program(), static.Program()
        with static.program_guard(main, startup), static.scope_guard(static.Scope()), paddle.utils.unique_name.guard():
            options: Any = {"ipus": 2, "pipelined": True, "micro_batch": 2, "auto_recomputation": recomputation}
            device = normalised(paddle, exact.strategy(paddle, counts(1, 4), **options), cut=True)
            device.run(x.reshape(-1, 1))
            device.sync()
            means.append(device.value(MEAN))

    check.identical(actual=means[1], expected=means[0], what="the running mean")
    check.identical(actual=means[0], expected=moved(x.reshape(4, 2)), what="the mean without recomputation")
