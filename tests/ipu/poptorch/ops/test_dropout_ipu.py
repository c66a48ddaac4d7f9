"""Dropout: how much it drops, that its masks are independent, and that a seed decides them all."""

from __future__ import annotations

from typing import Any, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.tolerance.ops import FORMATS, Tolerance

from ..exact import assert_same
from ..lazily import poptorch, torch
from ..on_device import as_model

ITERATIONS, ACCUMULATION, REPLICAS, POSITIONS = 2, 3, 5, 600
"""All counts differ; 600 positions are enough for the exact tests of independence to fail when they should."""


def run(
    *, rate: float = 0.5, seed: int = 1, calls: int = 1, stages: int = 1, lr: float = 0.0
) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Outputs [call, D, G, R, position] of two dropouts, and the weight after all calls.

    The first drops the product of the input, which is ones, and the weight, which begins with ones; the second drops
    the input alone. With two stages each dropout is on an IPU of its own.
    """

    def forward(model: Any, x: Any) -> Any:
        first, second = model.first(x * model.weight), model.second(x)
        return first, second, poptorch.identity_loss(first.sum() + 0 * second.sum(), reduction="none")

    model = as_model(
        forward,
        weight=torch.nn.Parameter(torch.ones(POSITIONS)),
        first=torch.nn.Dropout(rate),
        second=poptorch.BeginBlock(torch.nn.Dropout(rate), ipu_id=stages - 1),
    )
    options = poptorch.Options().deviceIterations(ITERATIONS).replicationFactor(REPLICAS).randomSeed(seed)
    options.Training.gradientAccumulation(ACCUMULATION)
    options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
    options.outputMode(poptorch.OutputMode.All).autoRoundNumIPUs(True)
    trainer = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=lr))
    shape = (ITERATIONS, ACCUMULATION, REPLICAS, POSITIONS)
    returned = [trainer(torch.ones(ITERATIONS * ACCUMULATION * REPLICAS, POSITIONS)) for _ in range(calls)]
    first, second = (np.stack([call[place].numpy().reshape(shape) for call in returned]) for place in (0, 1))
    weight = model.weight.detach().numpy().copy()
    trainer.destroy()
    return first, second, weight


def kept(actual: np.ndarray, rate: float) -> np.ndarray:
    """Where dropout kept the ones; what it kept is divided by 1 - rate, which is one rounding of float32."""
    scaled = np.full(actual.shape, 1.0 / (1.0 - rate))
    one = Tolerance(
        scaled * 2 * FORMATS["float32"].unit, "two roundings of float32: of the factor and the product", 0.0
    )
    return check.dropout_values(actual=actual, inputs=np.ones(actual.shape), rate=rate, tolerance=one, what="dropout")


@pytest.mark.ipus(8)
@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.75, 0.875])
def test_dropout_drops_at_its_rate(rate: float) -> None:
    """A share of ``rate`` is 0, the others are divided by 1 - rate, and positions are independent."""
    first, _, _ = run(rate=rate)

    axes = ("call", "device iteration", "accumulation", "replica")
    check.dropout_masks(masks=kept(first, rate), rate=rate, axes=axes, what="the mask")


@pytest.mark.ipus(8)
@pytest.mark.parametrize("stages", [1, 2], ids=["single", "pipelined"])
def test_no_two_masks_know_of_each_other(stages: int) -> None:
    """Masks of calls, device iterations, micro-batches, replicas and layers are independent."""
    first, second, _ = run(calls=2, stages=stages)
    masks = np.stack([kept(first, 0.5), kept(second, 0.5)])

    axes = ("layer", "call", "device iteration", "accumulation", "replica")
    check.dropout_masks(masks=masks, rate=0.5, axes=axes, what="the mask")


def test_no_call_and_no_layer_repeats_a_mask() -> None:
    """Each of four layers drops by itself in each of 17 calls."""
    layers, calls = 4, 17

    def forward(model: Any, x: Any) -> Any:
        dropped = [layer(x) for layer in model.layers]
        return torch.cat(dropped), poptorch.identity_loss((model.weight * sum(dropped)).sum(), reduction="none")

    model = as_model(
        forward,
        weight=torch.nn.Parameter(torch.ones(POSITIONS)),
        layers=torch.nn.ModuleList(torch.nn.Dropout(0.5) for _ in range(layers)),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    trainer = poptorch.trainingModel(model, poptorch.Options().randomSeed(3), optimizer)
    outputs = np.stack([trainer(torch.ones(1, POSITIONS))[0].numpy() for _ in range(calls)])

    check.dropout_masks(masks=kept(outputs, 0.5), rate=0.5, axes=("call", "layer"), what="the mask")


@pytest.mark.ipus(8)
def test_seeds_give_independent_masks() -> None:
    """Seeds that are neighbours share nothing, nor do those that have their low bits in common."""
    masks = np.stack([kept(run(seed=seed)[0], 0.5) for seed in (1, 2, 1 + 2**16, 1 + 2**31)])

    axes = ("seed", "call", "device iteration", "accumulation", "replica")
    check.dropout_masks(masks=masks, rate=0.5, axes=axes, what="the mask")


@pytest.mark.parametrize(
    ("seed", "stages"),
    [pytest.param(*row, marks=pytest.mark.ipus(8 * row[1])) for row in ((0, 1), (1, 1), (2**31, 1), (1, 2))],
)
def test_a_seed_decides_every_mask(seed: int, stages: int) -> None:
    """The same seed and a new wrapper give the same bits, call for call, also where the model is cut."""
    first, second, _ = run(seed=seed, calls=2)
    again, other, _ = run(seed=seed, calls=2, stages=stages)

    check.identical(actual=again, expected=first, what="the first dropout", because="the seed is the same")
    check.identical(actual=other, expected=second, what="the second dropout", because="the seed is the same")


@pytest.mark.ipus(8)
@pytest.mark.parametrize("rate", [0.5, 0.75])
@pytest.mark.parametrize("stages", [1, 2], ids=["single", "pipelined"])
def test_gradients_pass_where_values_did(rate: float, stages: int) -> None:
    """The backward pass uses the mask of the forward pass: the gradient is the sum of what came out, exactly."""
    first, _, weight = run(rate=rate, lr=1.0, stages=stages)
    # Only the first device iteration has a weight of ones; sums of powers of two are exact in float32.
    mask = kept(first[:, :1], rate).sum(axis=(0, 1, 2, 3)) / (1 - rate)
    second = np.where(first[0, 1] != 0, 1.0, 0.0).sum(axis=(0, 1)) / (1 - rate)

    check.identical(actual=weight, expected=(1.0 - mask - second).astype(np.float32), what="the weight")


def test_evaluation_drops_nothing() -> None:
    """A model in evaluation mode passes its input on."""
    model = torch.nn.Dropout(0.5)
    model.eval()
    x = torch.arange(1.0, 13.0).reshape(4, 3)

    assert_same(poptorch.inferenceModel(model, poptorch.Options().deviceIterations(4))(x), x, "the output")
