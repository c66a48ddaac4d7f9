"""How the gradients of micro-batches and replicas become one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ipu_conformance import check
from ipu_conformance.run import RunConfig, learning_rate

from .frame import AnyNet, Runs, tolerance
from .table import Table, each, row, table
from .tiny import PAIR, SAMPLES, SUMMED


def reduced(name: AnyNet, counts: tuple, how: str, at: str = "", rate: float = 0.015625, **changes: Any) -> Table:
    """A row in which accumulation and replicas are reduced alike; the rate is low enough for sums."""
    both = {"accumulation_reduction": how, "replica_reduction": "sum" if how == "sum" else "mean"}
    return row(name, counts, at=at, word=how, learning_rate=learning_rate(base=rate), **both, **changes)


REDUCED = table(
    reduced("mlp", (2, 5, 3), "mean"),
    reduced("mlp", (3, 5, 2), "sum"),
    reduced("tied_weights", (1, 4, 2), "mean", "pipelined-2"),
    reduced("tied_weights", (1, 4, 2), "sum", "pipelined-2"),
    reduced("convnet", (3, 1, 2), "mean"),
    reduced("convnet", (3, 7, 1), "sum"),
    reduced("mlp", (2, 5, 1), "running_mean"),
    reduced("mlp", (1, 6, 1), "running_mean", "pipelined-3"),
    reduced("mlp", (2, 6, 1), "running_mean", "pipelined-3", steps=2),
    reduced(SUMMED, (3, 4, 5), "sum", rate=0.001953125, micro_batch=SAMPLES),
    reduced(PAIR, (2, 3, 5), "mean", micro_batch=SAMPLES),
)


@each(REDUCED)
def test_gradients_are_reduced_as_asked(runs: Runs, name: str, config: RunConfig) -> None:
    """A mean divides by what it adds up, a sum by nothing; both see every sample of every micro-batch and replica."""
    runs.compare(name, config)


BATCHES = table(
    row("mlp", (1, 4, 1)),
    row("residual", (2, 3, 1), "adam"),
    row("tied_weights", (1, 5, 1), "adamw"),
)


@each(BATCHES)
def test_micro_batches_are_worth_one_large_batch(runs: Runs, name: str, config: RunConfig) -> None:
    """The mean over accumulated micro-batches is the gradient of one micro-batch of all their samples."""
    large = replace(config, gradient_accumulation=1, micro_batch=config.micro_batch * config.gradient_accumulation)

    runs.compare_trainings(name, config, runs.train(name, large), ["weights"])


NARROW = table(
    row("mlp", (2, 5, 1), word="float16", accumulators="float16"),
    row("convnet", (1, 3, 2), "adam", word="float16", accumulators="float16"),
    row("mlp", (1, 6, 1), "momentum", "pipelined-3", word="float16", accumulators="float16"),
)


@each(NARROW)
def test_accumulators_have_the_type_that_was_asked_for(runs: Runs, name: str, config: RunConfig) -> None:
    """Gradients added up in float16 stay within its rounding, and beyond that of accumulators in float32."""
    run = runs.compare(name, config)
    wide = replace(config, accumulators="float32")
    other, allowed = runs.train(name, wide).weights or {}, tolerance(name, wide).weights
    weight = max(allowed, key=lambda weight: other[weight].size)

    check.apart(actual=(run.weights or {})[weight], other=other[weight], tolerance=allowed[weight], what=weight)
