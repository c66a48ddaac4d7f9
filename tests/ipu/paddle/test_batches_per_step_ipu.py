"""How often the weights are updated in one run, and which weights each micro-batch meets."""

from __future__ import annotations

from typing import Any

import pytest

from ipu_conformance import check

from . import exact
from .exact import Device, Factors

# Means over 1, 2, 4 or 8 micro-batches are exact.
UPDATING = (
    Factors(),
    Factors(B=2),
    Factors(B=3),
    Factors(B=5),
    Factors(B=3, G=2),
    Factors(B=2, G=4),
    Factors(B=5, G=4),
    Factors(B=3, R=2),
    Factors(B=2, R=4),
    Factors(B=3, G=2, R=4),
    Factors(B=3, G=4, R=2),
    Factors(G=4, R=2),
)


def trained(paddle: Any, factors: Factors, *, micro_batch: int = 2, stages: int = 1, **options: Any) -> Any:
    """One run of a chain: its samples, the device after it, and what was fetched."""
    made = exact.chain(paddle, stages=stages)
    chosen = exact.strategy(paddle, factors, micro_batch=micro_batch, ipus=stages, **options)
    device = Device(paddle, made, chosen)
    x = exact.samples(factors.micro_batches * micro_batch)
    fetched = device.run(x)
    device.backend.weights_to_host()
    return x, device, fetched


@pytest.mark.parametrize("factors", UPDATING, ids=str)
def test_every_batch_of_a_step_updates_once(paddle: Any, static: Any, factors: Factors) -> None:
    """A run updates batches_per_step times, each time by the mean over accumulation x replicas."""
    x, device, _ = trained(paddle, factors)
    expected = exact.plain_run(x, factors, micro_batch=2).weights

    check.identical(actual=device.weights()["w0"], expected=expected["w0"], what="the weight")


@pytest.mark.parametrize("factors", UPDATING, ids=str)
def test_a_batch_meets_the_weights_of_the_batch_before(paddle: Any, static: Any, factors: Factors) -> None:
    """The micro-batches of an update share their weights, and those of the next one meet the updated weights."""
    x, _, (out, loss) = trained(paddle, factors)
    expected = exact.plain_run(x, factors, micro_batch=2)

    check.identical(actual=out.reshape(expected.outputs.shape), expected=expected.outputs, what="the outputs")
    check.identical(actual=loss.reshape(-1), expected=expected.losses, what="the losses")


@pytest.mark.parametrize("factors", [factors for factors in UPDATING if factors.G * factors.R > 1], ids=str)
def test_a_sum_is_not_divided(paddle: Any, static: Any, factors: Factors) -> None:
    """With the reduction type Sum, gradients are added up over accumulation and replicas."""
    x, device, _ = trained(paddle, factors, accumulation_and_replication_reduction_type=0)
    expected = exact.plain_run(x, factors, micro_batch=2, mean=False).weights

    check.identical(actual=device.weights()["w0"], expected=expected["w0"], what="the weight")


@pytest.mark.parametrize("factors", [Factors(G=2), Factors(B=3, G=2), Factors(B=3, G=2, R=4)], ids=str)
def test_a_running_mean_is_the_mean(paddle: Any, static: Any, factors: Factors) -> None:
    """With the mean strategy Running, what is accumulated is a mean at any time, and the result the same."""
    x, device, _ = trained(paddle, factors, mean_accumulation_and_replication_reduction_strategy=0)
    expected = exact.plain_run(x, factors, micro_batch=2).weights

    check.identical(actual=device.weights()["w0"], expected=expected["w0"], what="the weight")


@pytest.mark.parametrize("factors", [Factors(), Factors(G=2), Factors(R=4), Factors(G=4, R=2)], ids=str)
def test_shards_update_like_one_ipu(paddle: Any, static: Any, factors: Factors) -> None:
    """Sharded over three IPUs without pipelining, each stage's weight is updated once per batch."""
    x, device, _ = trained(paddle, factors, stages=3, micro_batch=1)
    expected = exact.plain_run(x, factors, stages=3, micro_batch=1).weights
    weights = device.weights()

    assert sorted(weights) == sorted(expected)
    for name, value in expected.items():
        check.identical(actual=weights[name], expected=value, what=name)


@pytest.mark.parametrize("runs", [2, 3])
def test_a_run_goes_on_where_the_last_one_ended(paddle: Any, static: Any, runs: int) -> None:
    """Several runs of one batch leave what one run of as many batches leaves."""
    device = Device(paddle, exact.chain(paddle), exact.strategy(paddle))
    for sample in exact.samples(runs):
        device.run(sample[None])
    device.backend.weights_to_host()
    expected = exact.plain_run(exact.samples(runs), Factors(B=runs)).weights

    check.identical(actual=device.weights()["w0"], expected=expected["w0"], what="the weight")


@pytest.mark.parametrize("scaling", [4.0, 0.5, 1024.0])
@pytest.mark.parametrize("factors", [Factors(), Factors(B=3, G=2, R=4)], ids=str)
def test_loss_scaling_cancels(paddle: Any, static: Any, factors: Factors, scaling: float) -> None:
    """Loss scaling changes neither the losses nor the weights."""
    x, device, (_, loss) = trained(paddle, factors, loss_scaling=scaling)
    expected = exact.plain_run(x, factors, micro_batch=2)

    check.identical(actual=loss.reshape(-1), expected=expected.losses, what="the losses")
    check.identical(actual=device.weights()["w0"], expected=expected.weights["w0"], what="the weight")
