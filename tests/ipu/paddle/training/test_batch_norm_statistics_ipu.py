"""The running statistics of batch norm come home with the weights, and reach every replica."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from ...training import configured
from .. import exact
from ..device import Device, started
from ..exact import counts

MEAN, VARIANCE = "norm_mean", "norm_variance"


def normalised(paddle: Any, *, training: bool) -> Any:
    """Batch norm of what is fed; its statistics are half old and half new."""
    x = paddle.static.data("x", [None, 1], "float32")
    return paddle.static.nn.batch_norm(
        x, momentum=0.5, moving_mean_name=MEAN, moving_variance_name=VARIANCE, is_test=not training
    )


def test_statistics_stay_stale_on_the_host(paddle: Any, static: Any) -> None:
    """A run leaves the host's statistics as they were; a sync brings the device's mean and its variance."""
    out = normalised(paddle, training=True)
    loss = paddle.mean(paddle.square(out))
    paddle.optimizer.SGD(exact.RATE).minimize(loss)
    started(paddle)
    device = Device(paddle, [out, loss], exact.strategy(paddle, micro_batch=2))
    device.run(np.array([[4.0], [8.0]], np.float32))
    stale = {name: device.value(name) for name in (MEAN, VARIANCE)}
    device.sync()

    # Both begin at 0 and 1; the micro-batch has the mean 6 and the variance 4.
    for name, before, after in ((MEAN, 0.0, 3.0), (VARIANCE, 1.0, 2.5)):
        check.identical(actual=stale[name], expected=np.full(1, before, np.float32), what=f"{name} before the sync")
        check.identical(actual=device.value(name), expected=np.full(1, after, np.float32), what=name)


@pytest.mark.parametrize("config", configured({"R3": counts(1, 1, 3), "D2-R5": counts(2, 1, 5)}))
@pytest.mark.parametrize("changed", [MEAN, VARIANCE])
def test_every_replica_has_the_statistics_of_the_host(
    paddle: Any, static: Any, config: RunConfig, changed: str
) -> None:
    """The same sample gives the same bits on every replica, and other ones once a statistic on the host is another."""
    out = normalised(paddle, training=False)
    started(paddle)
    x = np.full((config.micro_batches, 1), 6.0, np.float32)
    outputs = {}
    for value in (0.5, 4.0):
        static.global_scope().find_var(changed).get_tensor().set(np.full(1, value, np.float32), paddle.CPUPlace())
        (outputs[value],) = Device(paddle, [out], exact.strategy(paddle, config, training=False)).run(x)
        first = np.broadcast_to(outputs[value].reshape(-1)[0], outputs[value].shape)

        check.identical(actual=outputs[value], expected=first, what="the outputs of all replicas")
    check.holds((outputs[0.5] != outputs[4.0]).all(), f"{changed} has no effect on some output")
