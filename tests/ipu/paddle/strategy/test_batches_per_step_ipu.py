"""How often the weights are updated in one run, and which weights each micro-batch meets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.tolerance.ops import FORMATS, Tolerance
from ipu_conformance.run import RunConfig

from ...training import counts_id
from .. import exact
from ..exact import Device, counts

# Means over powers of two micro-batches are exact.
UPDATING = (
    counts(),
    counts(2),
    counts(3),
    counts(5),
    counts(3, 2),
    counts(2, 4),
    counts(5, 4),
    counts(3, 1, 2),
    counts(2, 1, 4),
    counts(3, 2, 4),
    counts(3, 4, 2),
    counts(1, 4, 2),
    counts(9),
    counts(1, 16),
    counts(2, 1, 8),
)


def trained(paddle: Any, config: RunConfig, *, micro_batch: int = 2, stages: int = 1, **options: Any) -> Any:
    """One run of a chain: its samples, what was fetched, and the weights afterwards."""
    chosen = exact.strategy(paddle, config, micro_batch=micro_batch, ipus=stages, **options)
    device = Device(paddle, exact.chain(paddle, stages=stages), chosen)
    x = exact.samples(config.micro_batches * micro_batch)
    fetched = device.run(x)
    return x, fetched, device.synced_weights()


@pytest.mark.parametrize("config", UPDATING, ids=counts_id)
def test_every_batch_of_a_step_updates_once(paddle: Any, static: Any, config: RunConfig) -> None:
    """A run updates batches_per_step times, each time by the mean over accumulation x replicas."""
    x, _, weights = trained(paddle, config)

    check.identical(actual=weights["w0"], expected=exact.plain_run(x, config).weights["w0"], what="the weight")


@pytest.mark.parametrize("config", UPDATING, ids=counts_id)
def test_a_batch_meets_the_weights_of_the_batch_before(paddle: Any, static: Any, config: RunConfig) -> None:
    """The micro-batches of an update share their weights, and those of the next one meet the updated weights."""
    x, (out, loss), _ = trained(paddle, config)
    expected = exact.plain_run(x, config)

    check.identical(actual=out.reshape(expected.outputs.shape), expected=expected.outputs, what="the output")
    check.identical(actual=loss.reshape(-1), expected=expected.losses, what="the loss")


@pytest.mark.parametrize(
    "config", [each for each in UPDATING if each.gradient_accumulation * each.replicas > 1], ids=counts_id
)
def test_a_sum_is_not_divided(paddle: Any, static: Any, config: RunConfig) -> None:
    """With the reduction type Sum, gradients are added up over accumulation and replicas."""
    x, _, weights = trained(paddle, config, accumulation_and_replication_reduction_type=0)
    expected = exact.plain_run(x, config, mean=False).weights

    check.identical(actual=weights["w0"], expected=expected["w0"], what="the weight")


@pytest.mark.parametrize("config", [counts(1, 2), counts(3, 2), counts(3, 2, 4)], ids=counts_id)
def test_a_running_mean_is_the_mean(paddle: Any, static: Any, config: RunConfig) -> None:
    """With the mean strategy Running, the accumulator always holds a mean, and the result is the same."""
    x, _, weights = trained(paddle, config, mean_accumulation_and_replication_reduction_strategy=0)

    check.identical(actual=weights["w0"], expected=exact.plain_run(x, config).weights["w0"], what="the weight")


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


@pytest.mark.parametrize("config", [counts(), counts(1, 2), counts(1, 1, 4), counts(1, 4, 2)], ids=counts_id)
def test_shards_update_like_one_ipu(paddle: Any, static: Any, config: RunConfig) -> None:
    """Sharded over three IPUs without pipelining, each stage's weight is updated once per batch."""
    x, _, weights = trained(paddle, config, stages=3, micro_batch=1)
    expected = exact.plain_run(x, config, stages=3).weights

    check.equal(actual=sorted(weights), expected=sorted(expected), what="the list of weights")
    for name, value in expected.items():
        check.identical(actual=weights[name], expected=value, what=name)


@pytest.mark.parametrize("runs", [2, 3])
def test_a_run_goes_on_where_the_last_one_ended(paddle: Any, static: Any, runs: int) -> None:
    """Several runs of one batch leave the weights of one run of as many batches."""
    device = Device(paddle, exact.chain(paddle), exact.strategy(paddle))
    for sample in exact.samples(runs):
        device.run(sample[None])
    expected = exact.plain_run(exact.samples(runs), counts(runs)).weights

    check.identical(actual=device.synced_weights()["w0"], expected=expected["w0"], what="the weight")


@pytest.mark.parametrize("scaling", [4.0, 0.5, 1024.0])
@pytest.mark.parametrize("config", [counts(), counts(3, 2, 4)], ids=counts_id)
def test_loss_scaling_cancels(paddle: Any, static: Any, config: RunConfig, scaling: float) -> None:
    """Loss scaling changes neither the losses nor the weights."""
    x, (_, loss), weights = trained(paddle, config, loss_scaling=scaling)
    expected = exact.plain_run(x, config)

    check.identical(actual=loss.reshape(-1), expected=expected.losses, what="the loss")
    check.identical(actual=weights["w0"], expected=expected.weights["w0"], what="the weight")
