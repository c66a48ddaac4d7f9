"""The running statistics of batch norm come home with the weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipu_conformance import check

from .. import exact
from ..device import Device, started

MEAN = "norm_mean"


def test_statistics_stay_stale_on_the_host(paddle: Any, static: Any) -> None:
    """A run leaves the host's statistics as they were; a sync brings the device's."""
    x = static.data("x", [None, 1], "float32")
    out = static.nn.batch_norm(x, momentum=0.5, moving_mean_name=MEAN, moving_variance_name="norm_variance")
    loss = paddle.mean(paddle.square(out))
    paddle.optimizer.SGD(0.0).minimize(loss)
    started(paddle)
    device = Device(paddle, [out, loss], exact.strategy(paddle, micro_batch=2))
    device.run(np.array([[4.0], [8.0]], np.float32))
    stale = device.value(MEAN)
    device.sync()

    check.identical(actual=stale, expected=np.zeros(1, np.float32), what="the running mean before the sync")
    check.identical(actual=device.value(MEAN), expected=np.full(1, 3.0, np.float32), what="the running mean")
