"""Automatic loss scaling: the scale doubles after each update, and halves when gradients near the end of their range.

The scale is seen in the gradients themselves, which are anchored before it is taken out of them.
"""

from __future__ import annotations

from typing import Any, List

import pytest

from ipu_conformance import check

from ..lazily import torch
from ..on_device import as_model

SMALL = 2.0**-26
"""A gradient that float16 cannot hold: its smallest number is 2 to the power of -24."""


def _model(poptorch: Any, torch: Any, dtype: Any, gradient: float) -> Any:
    """A product whose weight has this gradient for inputs of ones."""
    weight = torch.nn.Parameter(torch.zeros(2, 1, dtype=dtype))
    return as_model(lambda model, x: poptorch.identity_loss((x @ model.weight).sum() * gradient, "none"), weight=weight)


def _scaled(
    poptorch: Any, model: Any, *, automatic: bool = True, calls: int = 2, rate: float = 0.0, scale: float = 1.0
) -> List[float]:
    """The anchored gradients of three device iterations of two replicas that accumulate four times, call after call."""
    options = poptorch.Options().deviceIterations(3).replicationFactor(2)
    options.Training.gradientAccumulation(4).setAutomaticLossScaling(automatic)
    options.anchorTensor("gradient", "Gradient___weight", poptorch.OutputMode.All)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=rate, loss_scaling=scale)
    trainer = poptorch.trainingModel(model, options, optimizer)
    seen: List[float] = []
    for _ in range(calls):
        trainer(torch.ones(24, 2, dtype=model.weight.dtype))
        gradients = trainer.getAnchoredTensor("gradient").reshape(3, 8, -1).float()
        check.holds((gradients == gradients[:, :1, :1]).all(), "Micro-batches and replicas of an update differ.")
        seen += gradients[:, 0, 0].tolist()
    trainer.destroy()
    return seen


@pytest.mark.parametrize(("automatic", "growth"), [(True, 2.0), (False, 1.0)], ids=["on", "off"])
def test_the_scale_doubles_after_every_update(poptorch: Any, torch: Any, automatic: bool, growth: float) -> None:
    """Three updates of a call and those of the next four: each sees twice the scale of the one before."""
    model = _model(poptorch, torch, torch.float32, 3.0)

    actual = _scaled(poptorch, model, automatic=automatic, scale=0.5, calls=5)

    check.equal(actual=actual, expected=[1.5 * growth**step for step in range(15)], what="the list of scaled gradients")


def test_small_gradients_begin_to_count(poptorch: Any, torch: Any) -> None:
    """In float16 the first two of six updates are lost, the others move the weight as if nothing were scaled."""
    model = _model(poptorch, torch, torch.float16, SMALL)

    actual = _scaled(poptorch, model, rate=2.0**20)

    expected = [0.0, 0.0, *(SMALL * 2.0**step for step in range(2, 6))]
    check.equal(actual=actual, expected=expected, what="the list of scaled gradients")
    weight = model.weight.detach().flatten().tolist()
    check.equal(actual=weight, expected=[-4 * 2.0**20 * SMALL] * 2, what="the weight after six updates")


def test_the_scale_is_halved_near_the_end_of_the_range(poptorch: Any, torch: Any) -> None:
    """Above a sixteenth of the range of float16 the scale halves, below it doubles again."""
    model = _model(poptorch, torch, torch.float16, 1.0)

    actual = _scaled(poptorch, model, scale=2.0**14)

    expected = [2.0**14, 2.0**13, 2.0**12, 2.0**11, 2.0**12, 2.0**11]
    check.equal(actual=actual, expected=expected, what="the list of scaled gradients")


def test_a_scale_for_float16_fits_into_it(poptorch: Any, torch: Any) -> None:
    """The scale grows to 2 to the power of 15 and no further."""
    model = _model(poptorch, torch, torch.float16, 2.0**-10)

    actual = _scaled(poptorch, model, scale=2.0**12)

    expected = [2.0**power for power in (2, 3, 4, 5, 5, 5)]
    check.equal(actual=actual, expected=expected, what="the list of scaled gradients")


def test_the_edge_can_be_chosen(poptorch: Any, torch: Any) -> None:
    """With the edge at half the range gradients of a quarter of it still double."""
    model = _model(poptorch, torch, torch.float16, 1.0)
    options = poptorch.Options().deviceIterations(3).anchorTensor("g", "Gradient___weight", poptorch.OutputMode.All)
    options.Training.setAutomaticLossScaling(True)
    options._Popart.set("automaticLossScalingSettings.binEdgeLocation", 0.5)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.0, loss_scaling=2.0**14)
    trainer = poptorch.trainingModel(model, options, optimizer)
    trainer(torch.ones(3, 2, dtype=torch.float16))

    actual = trainer.getAnchoredTensor("g").reshape(3, -1)[:, 0].tolist()
    check.equal(actual=actual, expected=[2.0**14, 2.0**15, 2.0**14], what="the list of scaled gradients")


def test_a_model_without_products_is_refused(poptorch: Any, torch: Any) -> None:
    """There must be a matrix product or a convolution whose gradients can be looked at."""
    weight = torch.nn.Parameter(torch.zeros(2))
    model = as_model(lambda model, x: poptorch.identity_loss(x * model.weight, "sum"), weight=weight)
    options = poptorch.Options()
    options.Training.setAutomaticLossScaling(True)

    with check.raises(poptorch.Error, match="tracked", what="automatic loss scaling without a product"):
        poptorch.trainingModel(model, options)(torch.ones(1, 2))
