"""Automatic loss scaling: the scale doubles after each update, and halves when gradients near the end of their range.

The scale is seen in the gradients themselves, which are anchored before it is taken out of them.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import pytest

from ipu_conformance import check

from ..lazily import poptorch, torch
from ..on_device import as_model

SMALL = 2.0**-26
"""A gradient that float16 cannot hold: its smallest number is 2 to the power of -24."""


def _model(dtype: str, gradient: float) -> Any:
    """A product whose weight has this gradient for inputs of ones."""
    weight = torch.nn.Parameter(torch.zeros(2, 1, dtype=getattr(torch, dtype)))
    return as_model(lambda model, x: poptorch.identity_loss((x @ model.weight).sum() * gradient, "none"), weight=weight)


def _scaled(
    model: Any, calls: int, *, automatic: bool = True, edge: float = 0.0, rate: float = 0.0, scale: float = 1.0
) -> List[float]:
    """The anchored gradients of three device iterations of two replicas that accumulate four times, call after call."""
    options = poptorch.Options().deviceIterations(3).replicationFactor(2)
    options.Training.gradientAccumulation(4).setAutomaticLossScaling(automatic)
    options.anchorTensor("gradient", "Gradient___weight", poptorch.OutputMode.All)
    if edge:
        options._Popart.set("automaticLossScalingSettings.binEdgeLocation", edge)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=rate, loss_scaling=scale)
    trainer = poptorch.trainingModel(model, options, optimizer)
    seen: List[float] = []
    for _ in range(calls):
        with check.accepted("training a model with a product"):
            trainer(torch.ones(24, 2, dtype=model.weight.dtype))
        gradients = trainer.getAnchoredTensor("gradient").reshape(3, 8, -1).float()
        check.holds((gradients == gradients[:, :1, :1]).all(), "Micro-batches and replicas of an update differ.")
        seen += gradients[:, 0, 0].tolist()
    trainer.destroy()
    return seen


SCALED: Dict[str, Tuple[str, float, Dict[str, Any], List[float]]] = {
    "on": ("float32", 3.0, {"scale": 0.5}, [1.5 * 2.0**step for step in range(15)]),
    "off": ("float32", 3.0, {"scale": 0.5, "automatic": False}, [1.5] * 15),
    # Above a sixteenth of the range of float16 the scale halves, below it doubles again.
    "near-the-end": ("float16", 1.0, {"scale": 2.0**14}, [2.0**power for power in (14, 13, 12, 11, 12, 11)]),
    "edge-at-half-the-range": ("float16", 1.0, {"scale": 2.0**14, "edge": 0.5}, [2.0**14, 2.0**15, 2.0**14]),
    # The scale itself fits into float16: it grows to 2 to the power of 15 and no further.
    "at-most": ("float16", 2.0**-10, {"scale": 2.0**12}, [2.0**power for power in (2, 3, 4, 5, 5, 5)]),
}
"""Type and size of the gradient, the settings, and what the anchored gradients are, update after update."""


@pytest.mark.parametrize("name", SCALED)
def test_the_scale_doubles_after_every_update(name: str) -> None:
    """Each update sees twice the scale of the one before, or half of it after gradients near the end of the range."""
    dtype, gradient, settings, expected = SCALED[name]

    actual = _scaled(_model(dtype, gradient), len(expected) // 3, **settings)

    check.equal(actual=actual, expected=expected, what="the list of scaled gradients")


PRODUCTS: Dict[str, Tuple[Tuple[int, ...], str]] = {
    "matmul": ((2, 1), "x @ weight"),
    "linear": ((1, 2), "torch.nn.functional.linear(x, weight)"),
    "bmm": ((1, 2, 1), "torch.bmm(x[:, None], weight)"),
    "conv1d": ((1, 1, 2), "torch.nn.functional.conv1d(x[:, None], weight)"),
    "conv2d": ((1, 1, 1, 2), "torch.nn.functional.conv2d(x[:, None, None], weight)"),
}
"""The shape of a weight, and what it is multiplied by."""


@pytest.mark.parametrize("name", PRODUCTS)
def test_every_kind_of_product_is_looked_at(name: str) -> None:
    """The scale halves where the gradients of one product near the end of the range and those of another are small."""
    shape, text = PRODUCTS[name]
    kinds = {"weight": shape, "other": (2, 1) if name == "linear" else (1, 2)}
    weights = {each: torch.nn.Parameter(torch.zeros(size, dtype=torch.float16)) for each, size in kinds.items()}

    def forward(model: Any, x: Any) -> Any:
        large = eval(text, {"torch": torch, "x": x, "weight": model.weight})
        small = x @ model.other if name == "linear" else torch.nn.functional.linear(x, model.other)
        return poptorch.identity_loss(large.sum() + small.sum() * 2.0**-10, "none")

    actual = _scaled(as_model(forward, **weights), 2, scale=2.0**14)

    _, _, _, expected = SCALED["near-the-end"]
    check.equal(actual=actual, expected=expected, what=f"the list of scaled gradients of the {name}")


def test_small_gradients_begin_to_count() -> None:
    """In float16 the first two of six updates are lost, the others move the weight as if nothing were scaled."""
    model = _model("float16", SMALL)

    actual = _scaled(model, 2, rate=2.0**20)

    expected = [0.0, 0.0, *(SMALL * 2.0**step for step in range(2, 6))]
    check.equal(actual=actual, expected=expected, what="the list of scaled gradients")
    weight = model.weight.detach().flatten().tolist()
    check.equal(actual=weight, expected=[-4 * 2.0**20 * SMALL] * 2, what="the weight after six updates")


def test_a_model_without_products_is_refused() -> None:
    """There must be a matrix product or a convolution whose gradients can be looked at."""
    weight = torch.nn.Parameter(torch.zeros(2))
    model = as_model(lambda model, x: poptorch.identity_loss(x * model.weight, "sum"), weight=weight)
    options = poptorch.Options()
    options.Training.setAutomaticLossScaling(True)

    with check.raises(poptorch.Error, match="tracked", what="automatic loss scaling without a product"):
        poptorch.trainingModel(model, options)(torch.ones(1, 2))


SHARE = "automaticLossScalingSettings.thresholdUpperCountProportion"


@pytest.mark.parametrize(("threshold", "growth"), [(0.375, 2.0), (0.3125, 0.5)], ids=["below", "above"])
def test_what_is_large_counts_among_all_gradients(poptorch: Any, torch: Any, threshold: float, growth: float) -> None:
    """The share of large elements is one of three for a threshold, over all replicas: large ones come to the last."""
    weight = torch.nn.Parameter(torch.zeros(2, 1, dtype=torch.float16))
    model = as_model(lambda model, x: poptorch.identity_loss((x @ model.weight).sum(), "none"), weight=weight)
    options = poptorch.Options().deviceIterations(2).replicationFactor(3).autoRoundNumIPUs(True)
    options.Training.setAutomaticLossScaling(True)
    options._Popart.set(SHARE, threshold)
    options.anchorTensor("g", "Gradient___weight", poptorch.OutputMode.All)
    trainer = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.0, loss_scaling=64.0))
    fed = torch.ones(6, 2, dtype=torch.float16)
    fed[2::3] = 256.0
    trainer(fed)

    actual = trainer.getAnchoredTensor("g").reshape(2, 3, -1)[:, :, 0].tolist()
    scaled = [64.0, 64.0 * growth]
    expected = [[scale, scale, 256.0 * scale] for scale in scaled]
    check.equal(actual=actual, expected=expected, what="the list of scaled gradients, by update and replica")
