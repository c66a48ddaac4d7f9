"""How the gradients of micro-batches and replicas become one."""

from __future__ import annotations

from typing import Any

import pytest

from ipu_conformance.run import RunConfig

from ...training import counts_id, reduced
from .. import exact
from ..exact import TRAINING, assert_same, counts

STRATEGIES = ("Running", "Post", "PostAndLoss")


@pytest.mark.parametrize("reduction", ["Mean", "Sum"])
@pytest.mark.parametrize("config", TRAINING, ids=counts_id)
def test_gradients_are_reduced_as_asked(poptorch: Any, torch: Any, config: RunConfig, reduction: str) -> None:
    """Mean divides by accumulation times replicas, Sum by nothing; one update per device iteration."""
    model, x = exact.scale(poptorch), exact.batch(config)
    rate = exact.RATE if reduction == "Mean" else exact.RATE / 8
    expected = exact.plain_run(x, reduced(config, reduction.lower(), rate))
    made = exact.options(poptorch, config)
    made.Training.accumulationAndReplicationReductionType(getattr(poptorch.ReductionType, reduction))
    trainer = poptorch.trainingModel(model, made, torch.optim.SGD(model.parameters(), lr=rate))

    trainer(x)

    exact.assert_weights(model, expected.weights)


@pytest.mark.parametrize("config", [counts(2, 3, 1), counts(2, 1, 4), counts(1, 4, 2)], ids=counts_id)
def test_the_default_is_a_mean(poptorch: Any, config: RunConfig) -> None:
    """Without an option gradients are averaged."""
    model, x = exact.scale(poptorch), exact.batch(config)
    expected = exact.plain_run(x, config)
    trainer = poptorch.trainingModel(model, exact.options(poptorch, config), exact.sgd(model))

    trainer(x)

    exact.assert_weights(model, expected.weights)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("config", [counts(3, 2, 1), counts(3, 2, 4), counts(2, 1, 4), counts(1, 2, 4)], ids=counts_id)
def test_every_strategy_gives_the_mean(poptorch: Any, config: RunConfig, strategy: str) -> None:
    """A mean that runs and one that is taken at the end are the same number; two parts make both exact."""
    model, x = exact.scale(poptorch), exact.batch(config)
    expected = exact.plain_run(x, config)
    made = exact.options(poptorch, config)
    made.Training.setMeanAccumulationAndReplicationReductionStrategy(getattr(poptorch.MeanReductionStrategy, strategy))
    trainer = poptorch.trainingModel(model, made, exact.sgd(model))

    trainer(x)

    exact.assert_weights(model, expected.weights)


def test_no_reduction_is_refused(poptorch: Any) -> None:
    """Gradients are always reduced."""
    with pytest.raises(ValueError, match="NoReduction"):
        poptorch.Options().Training.accumulationAndReplicationReductionType(poptorch.ReductionType.NoReduction)


def weighted(poptorch: Any) -> Any:
    """A model whose gradient is the sum of its micro-batch."""
    import torch

    class Model(torch.nn.Module):
        """A weight times a constant."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, x: Any) -> Any:
            return poptorch.identity_loss((self.weight * x).sum(), reduction="none")

    return Model()


@pytest.mark.parametrize(("strategy", "finite"), [("Post", False), ("Running", True)])
def test_a_running_mean_does_not_overflow(poptorch: Any, torch: Any, strategy: str, finite: bool) -> None:
    """Four gradients of 2^15 overflow a float16 accumulator as a sum, and not as a running mean."""
    model = weighted(poptorch)
    made = exact.options(poptorch, counts(1, 4, 1))
    made.Training.setMeanAccumulationAndReplicationReductionStrategy(getattr(poptorch.MeanReductionStrategy, strategy))
    optimizer = poptorch.optim.SGD(model.parameters(), lr=2.0**-15, accum_type=torch.float16, use_combined_accum=False)

    poptorch.trainingModel(model, made, optimizer)(torch.full((4, 1), 2.0**15))

    assert bool(torch.isfinite(model.weight).all()) == finite
    if finite:
        assert model.weight.item() == -1.0


def test_float16_accumulators_run_by_default(poptorch: Any, torch: Any) -> None:
    """Without an option float16 accumulators keep a running mean."""
    model = weighted(poptorch)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=2.0**-15, accum_type=torch.float16, use_combined_accum=False)

    made = exact.options(poptorch, counts(1, 4, 1))
    poptorch.trainingModel(model, made, optimizer)(torch.full((4, 1), 2.0**15))

    assert model.weight.item() == -1.0


def test_a_strategy_cannot_change_after_compiling(poptorch: Any, torch: Any) -> None:
    """An optimizer that needs a running mean comes too late for a model that was compiled without."""
    model, x = exact.scale(poptorch), exact.batch(counts(1, 2, 1))
    made = exact.options(poptorch, counts(1, 2, 1))
    first = poptorch.optim.SGD(model.parameters(), lr=0.5, accum_type=torch.float32, use_combined_accum=False)
    trainer = poptorch.trainingModel(model, made, first)
    trainer(x)

    with pytest.raises(ValueError, match="already compiled"):
        trainer.setOptimizer(
            poptorch.optim.SGD(model.parameters(), lr=0.5, accum_type=torch.float16, use_combined_accum=False)
        )


@pytest.mark.parametrize("config", [counts(1, 4, 2), counts(2, 1, 4)], ids=counts_id)
def test_micro_batches_and_replicas_are_alike(poptorch: Any, config: RunConfig) -> None:
    """Eight, or four, parts of a batch give the same weights as accumulation steps or as replicas."""
    x = exact.batch(config)
    results = []
    for made in (config, counts(config.device_iterations, config.gradient_accumulation * config.replicas, 1)):
        model = exact.scale(poptorch)
        trainer = poptorch.trainingModel(model, exact.options(poptorch, made), exact.sgd(model))
        trainer(x)
        results.append(model.weight.detach().clone())

    assert_same(results[0], results[1], "weight")


def test_accumulators_begin_anew_after_an_update(poptorch: Any, torch: Any) -> None:
    """The gradient of the second device iteration has nothing of the first one."""
    config = counts(2, 3, 1)
    model = weighted(poptorch)
    made = exact.options(poptorch, config)
    made.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
    trainer = poptorch.trainingModel(model, made, torch.optim.SGD(model.parameters(), lr=1.0))

    trainer(torch.tensor([1.0, 2.0, 4.0, 0.0, 0.0, 0.0])[:, None])

    assert model.weight.item() == -7.0


@pytest.mark.parametrize("accumulation", [2, 4])
def test_the_loss_is_not_scaled_by_the_reduction(poptorch: Any, torch: Any, accumulation: int) -> None:
    """Losses come back as each micro-batch computed them."""
    config = counts(1, accumulation, 1)
    model, x = exact.scale(poptorch), exact.batch(config)
    expected = exact.plain_run(x, config)

    _, losses = poptorch.trainingModel(model, exact.options(poptorch, config), exact.sgd(model))(x)

    assert_same(losses, torch.stack(expected.losses[0]), "losses")
