"""Half precision: nets in float16 train within what float16 explains, and not within what float32 does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict

import numpy as np

from ipu_conformance import check
from ipu_conformance.nets import INPUT, Data, Layer, Net, Weight
from ipu_conformance.oracle.training import train as oracle
from ipu_conformance.run import RunConfig, learning_rate

from .frame import Runs, tolerance
from .table import Row, chosen, counted, each, row, table

GENTLE: Dict[str, Any] = {"dtype": "float16", "learning_rate": learning_rate(base=0.0625)}
HALF = table(
    row("linear", (2, 5, 3), **GENTLE),
    row("mlp", (2, 3, 1), **GENTLE),
    row("residual", (2, 3, 1), **GENTLE),
    row("tied_weights", (1, 3, 2), **GENTLE),
    row("mlp", (2, 3, 1), "adam", dtype="float16"),
    row("mlp", (1, 6, 2), at="pipelined-3", **GENTLE),
    row("tied_weights", (1, 4, 1), at="pipelined-2", **GENTLE),
    row("mlp", (2, 3, 1), at="sharded-4", **GENTLE),
    row("mlp", (2, 5, 3), word="scaled", loss_scale=64.0, **GENTLE),
    row("mlp", (2, 5, 3), word="partials", partials="float16", **GENTLE),
)


@each(chosen(HALF, lambda each: each.config.partials == "float32"))
def test_half_is_coarser_than_single(runs: Runs, name: str, config: RunConfig) -> None:
    """A run in float16 is farther from the oracle's than float32 explains."""
    single = tolerance(name, replace(config, dtype="float32"))
    losses = runs.train(name, config).losses[0]
    exact = runs.train(name, replace(config, dtype="float32")).losses[0]

    check.apart(actual=losses, other=exact, tolerance=single.losses[0], what="the losses")


ROUNDED = table(
    row("mlp", (2, 5, 3), word="stochastic", stochastic_rounding=True, **GENTLE),
    row("tied_weights", (1, 3, 2), word="stochastic", stochastic_rounding=True, **GENTLE),
)


@each({**HALF, **ROUNDED})
def test_a_net_in_half_trains_as_specified(runs: Runs, name: str, config: RunConfig) -> None:
    """What is in float16, and rounded to the nearest or at random, stays within the tolerance of float16."""
    runs.compare(name, config)


BLOCK, BLOCKS = 16, 16
"""Terms that are added up before a partial sum is rounded, at most, and how many such blocks follow the first."""


def plain(features: int, start: float) -> Net:
    """One linear layer to two classes, both with the same weights, so that each has a share of one half."""
    weights = (Weight("fc1.weight", (2, features), constant=start), Weight("fc1.bias", (2,)))
    layer = Layer("fc1", "linear", (INPUT,), tuple(weight.name for weight in weights))
    return Net(f"plain-{features}", (features,), 2, (layer,), weights)


WIDE, NARROW = plain(BLOCK * (1 + BLOCKS), 1.0), plain(3, 0.0)
ADDED = {"accumulation_reduction": "sum", "replica_reduction": "sum", "dtype": "float16", "micro_batch": 1}


@each({"sums": Row(WIDE, counted(3, 1, 1, "sgd", **{**ADDED, "learning_rate": learning_rate(base=2.0**-9)}))})
def test_products_of_half_numbers_are_added_up_in_single(runs: Runs, name: Net, config: RunConfig) -> None:
    """A sum of 2048 and sixteen ones is 2064, where partial sums in float16 would stay at 2048 with each of them."""
    sample = np.concatenate([np.full(BLOCK, 128.0), np.tile(np.eye(1, BLOCK)[0], BLOCKS)])
    data = Data(np.tile(sample, (1, config.combined_batch, 1)), np.zeros((1, config.combined_batch), np.int64))
    outputs = runs.driver.train(name, config, data).outputs[0]

    check.identical(
        actual=np.ravel(outputs)[:2], expected=np.full(2, sample.sum()), what="the outputs of the first sample"
    )


GATHERED = {
    "accumulated": Row(NARROW, counted(1, 5, 1, "sgd", **{**ADDED, "learning_rate": learning_rate(base=2.0**-12)})),
    "replicated": Row(NARROW, counted(1, 5, 3, "sgd", **{**ADDED, "learning_rate": learning_rate(base=2.0**-12)})),
}


@each(GATHERED)
def test_gradients_of_half_numbers_are_added_up_in_single(runs: Runs, name: Net, config: RunConfig) -> None:
    """A gradient of 2048 and ones of other micro-batches and replicas add up exactly; float16 would lose the ones."""
    inputs = np.full((1, config.combined_batch, 3), 2.0)
    inputs[0, 0] = 4096.0
    data = Data(inputs, np.zeros((1, config.combined_batch), np.int64))
    weights = runs.driver.train(name, config, data).weights

    wanted = (oracle.train(name, data, config).weights or {})["fc1.weight"]
    check.identical(actual=weights["fc1.weight"], expected=wanted, what="the weights", because="every sum is exact")
