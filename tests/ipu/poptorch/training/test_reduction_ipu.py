"""How the gradients of micro-batches and replicas become one."""

from __future__ import annotations

from typing import Any

import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from ...training import counts_id
from .. import exact
from ..exact import counts
from ..lazily import torch
from ..on_device import as_model


@pytest.mark.parametrize("strategy", ["Running", "Post", "PostAndLoss"])
@pytest.mark.parametrize("config", [counts(3, 2, 1), counts(3, 2, 4), counts(2, 1, 4), counts(1, 2, 4)], ids=counts_id)
def test_every_strategy_gives_the_mean(poptorch: Any, config: RunConfig, strategy: str) -> None:
    """A mean that runs and one that is taken at the end are the same number; two parts make both exact."""
    options, x = exact.options(poptorch, config), exact.batch(config)
    options.Training.setMeanAccumulationAndReplicationReductionStrategy(
        getattr(poptorch.MeanReductionStrategy, strategy)
    )
    trainer, model = exact.trainer(poptorch, chosen=options)

    trainer(x)

    exact.assert_weights(model, exact.plain_run(x, config).weights)


def weighted(poptorch: Any) -> Any:
    """A model whose gradient is the sum of its micro-batch."""
    return as_model(
        lambda model, x: poptorch.identity_loss((model.weight * x).sum(), reduction="none"),
        weight=torch.nn.Parameter(torch.zeros(1)),
    )


@pytest.mark.parametrize(("strategy", "finite"), [("Post", False), ("Running", True), ("default", True)])
def test_a_running_mean_does_not_overflow(poptorch: Any, torch: Any, strategy: str, finite: bool) -> None:
    """Four gradients of 2^15 overflow a float16 accumulator as a sum, and not as a running mean, its default."""
    model = weighted(poptorch)
    options = exact.options(poptorch, counts(1, 4, 1))
    if strategy != "default":
        options.Training.setMeanAccumulationAndReplicationReductionStrategy(
            getattr(poptorch.MeanReductionStrategy, strategy)
        )
    optimizer = poptorch.optim.SGD(model.parameters(), lr=2.0**-15, accum_type=torch.float16, use_combined_accum=False)

    poptorch.trainingModel(model, options, optimizer)(torch.full((4, 1), 2.0**15))

    check.equal(actual=bool(torch.isfinite(model.weight).all()), expected=finite, what="whether the weight is finite")
    if finite:
        check.equal(actual=model.weight.item(), expected=-1.0, what="the weight")


def test_accumulators_are_cleared_by_an_update(poptorch: Any, torch: Any) -> None:
    """The gradient of the second device iteration has nothing of the first one."""
    model, options = weighted(poptorch), exact.options(poptorch, counts(2, 3, 1))
    options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
    trainer = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=1.0))

    trainer(torch.tensor([1.0, 2.0, 4.0, 0.0, 0.0, 0.0])[:, None])

    check.equal(actual=model.weight.item(), expected=-7.0, what="the weight")
