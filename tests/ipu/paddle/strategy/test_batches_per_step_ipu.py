"""How often the weights are updated in one run, and which weights each micro-batch meets."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.tolerance.ops import FORMATS, Tolerance
from ipu_conformance.run import RunConfig

from ...training import counts_id
from .. import exact
from ..device import compiled, started
from ..exact import Device, counts

# Means over powers of two micro-batches are exact.
UPDATING = [
    counts(*each)
    for each in [
        (1,), (2,), (3,), (5,), (9,), (3, 2), (2, 4), (5, 4), (1, 16), (3, 1, 2), (2, 1, 4), (2, 1, 8), (3, 2, 4),
        (3, 4, 2), (1, 4, 2),
    ]
]  # fmt: skip
SUM, RUNNING = "accumulation_and_replication_reduction_type", "mean_accumulation_and_replication_reduction_strategy"
ROWS: Dict[str, Tuple[RunConfig, int, Dict[str, float]]] = {
    **{counts_id(each): (each, 1, {}) for each in UPDATING},
    **{
        f"sum-{counts_id(each)}": (each, 1, {SUM: 0})
        for each in UPDATING if each.gradient_accumulation * each.replicas > 1
    },
    **{f"running-{counts_id(each)}": (each, 1, {RUNNING: 0}) for each in (counts(1, 2), counts(3, 2), counts(3, 2, 4))},
    **{f"running-shards-{counts_id(each)}": (each, 2, {RUNNING: 0}) for each in (counts(2, 2),)},
    **{
        f"shards-{counts_id(each)}": (each, 3, {})
        for each in (counts(), counts(1, 2), counts(1, 1, 4), counts(1, 4, 2))
    },
    **{
        f"{scaling}-{counts_id(each)}": (each, 1, {"loss_scaling": scaling})
        for scaling in (4.0, 0.5, 1024.0) for each in (counts(), counts(3, 2, 4))
    },
}  # fmt: skip
"""The counts, the shards and the options of each run: sums, running means, or scaled losses."""


def trained(paddle: Any, config: RunConfig, *, stages: int = 1, **options: Any) -> Any:
    """One run of a chain: its samples, what was fetched, and the weights afterwards."""
    chosen = exact.strategy(paddle, config, micro_batch=2, ipus=stages, **options)
    device = Device(paddle, exact.chain(paddle, stages=stages), chosen)
    x = exact.samples(config.micro_batches * 2)
    return x, device.run(x), device.synced_weights()


@pytest.mark.parametrize(("config", "stages", "options"), ROWS.values(), ids=list(ROWS))
def test_every_batch_of_a_step_updates_once(paddle: Any, static: Any, config: Any, stages: int, options: Any) -> None:
    """A run updates batches_per_step times, each time by the mean, or the sum, over accumulation x replicas.

    The micro-batches of an update share their weights, and those of the next one meet the updated weights.
    """
    x, (out, loss), weights = trained(paddle, config, stages=stages, **options)
    expected = exact.plain_run(x, config, stages=stages, mean=SUM not in options)

    check.identical(actual=out.reshape(expected.outputs.shape), expected=expected.outputs, what="the output")
    check.identical(actual=loss.reshape(-1), expected=expected.losses, what="the loss")
    check.equal(actual=sorted(weights), expected=sorted(expected.weights), what="the list of weights")
    for name, value in expected.weights.items():
        check.identical(actual=weights[name], expected=value, what=name)


@pytest.mark.parametrize("config", [counts(1, 3), counts(1, 4, 2), counts(1, 5), counts(1, 7, 3)], ids=counts_id)
def test_a_running_mean_of_many_is_the_mean(paddle: Any, static: Any, config: RunConfig) -> None:
    """Every micro-batch has the same share in a running mean, however many there are."""
    x, _, weights = trained(paddle, config, mean_accumulation_and_replication_reduction_strategy=0)
    samples = x.astype(np.float64)
    gradients = (np.sign(samples * exact.START - 1) * samples).reshape(config.micro_batches, 2, -1).sum(axis=1)
    steps = exact.RATE * gradients
    # A running mean rounds three times a micro-batch; replicas are added up, divided, and the weight is moved.
    roundings = (3 * config.gradient_accumulation + config.replicas + 2) * np.abs(steps).max(axis=0)
    unit = FORMATS["float32"].unit
    allowed = Tolerance(unit * (roundings + np.abs(exact.START)), "the roundings of a running mean and a step", 0.0)

    expected = exact.START - steps.mean(axis=0)
    check.close(actual=weights["w0"], expected=expected, tolerance=allowed, what="the weight")


def test_a_running_mean_does_not_overflow(paddle: Any, static: Any) -> None:
    """Five gradients of 2^126 have a mean that float32 holds, and a sum that it does not."""
    large = 2.0**126
    start = paddle.nn.initializer.Constant(2.0)
    weight = paddle.static.create_parameter([1], "float32", "w", default_initializer=start)
    loss = paddle.sum(paddle.multiply(static.data("x", [None, 1], "float32"), weight))
    paddle.optimizer.SGD(1.0 / large).minimize(loss)
    started(paddle)
    options: Dict[str, Any] = {"enable_gradient_accumulation": True, "accumulation_factor": 5}
    device = compiled(
        paddle, [loss], size=1, training=True, mean_accumulation_and_replication_reduction_strategy=0, **options
    )
    device.run(np.full((5, 1), large, np.float32))
    device.sync()

    check.holds(np.isfinite(device.value("w")).all(), f"the weight is {device.value('w')}: the gradients overflowed.")


@pytest.mark.parametrize("runs", [2, 3])
def test_a_run_goes_on_where_the_last_one_ended(paddle: Any, static: Any, runs: int) -> None:
    """Several runs of one batch leave the weights of one run of as many batches."""
    device = Device(paddle, exact.chain(paddle), exact.strategy(paddle))
    for sample in exact.samples(runs):
        device.run(sample[None])
    expected = exact.plain_run(exact.samples(runs), counts(runs)).weights

    check.identical(actual=device.synced_weights()["w0"], expected=expected["w0"], what="the weight")
