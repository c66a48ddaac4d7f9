"""Replicas: what each is fed, how their gradients meet, and that they never drift apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, Optional

import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig, learning_rate

from .frame import Runs
from .table import GRID, chosen, each, row, table
from .test_precision_ipu import HALF

REPLICATED = chosen(GRID, lambda each: each.config.replicas > 1)
HALVES = {f"half-{word}": each for word, each in chosen(HALF, lambda each: each.config.replicas > 1).items()}


@pytest.mark.emulator
@each({**REPLICATED, **HALVES})
def test_replicas_hold_identical_weights(runs: Runs, name: str, config: RunConfig) -> None:
    """After an update every replica holds the same bits, on one IPU or on several, in float16 too."""
    check.replicas_identical(runs.train(name, config).weights_by_replica, step=config.steps)


@pytest.mark.emulator
@each(REPLICATED)
def test_the_user_reads_the_weights_of_every_replica(runs: Runs, name: str, config: RunConfig) -> None:
    """What the host holds after training is what each replica holds, bit for bit."""
    run = runs.train(name, config)
    replicas = run.weights_by_replica or ()

    check.equal(actual=len(replicas), expected=config.replicas, what="the number of replicas with weights")
    for weights in replicas:
        for weight, value in weights.items():
            check.identical(actual=(run.weights or {})[weight], expected=value, what=weight)


SUMS: Dict[str, Any] = {
    "accumulation_reduction": "sum",
    "replica_reduction": "sum",
    "learning_rate": learning_rate(base=0.015625),
}
WORTH = table(
    row("mlp", (1, 2, 3), word="sum", **SUMS),
    row("convnet", (2, 1, 3), word="sum", **SUMS),
    row("residual", (1, 4, 5), word="sum", **SUMS),
    row("tied_weights", (3, 4, 2), "momentum", "pipelined-2", word="sum", **SUMS),
)
MEANS = table(
    row("mlp", (1, 2, 3)),
    row("convnet", (3, 4, 2)),
    row("residual", (1, 2, 5), "adam"),
    row("tied_weights", (1, 4, 3), "adamw", "pipelined-2"),
)


def _mean(config: RunConfig) -> Optional[str]:
    return "a mean over replicas in fit" if config.replica_reduction == "mean" else None


@each({**WORTH, **MEANS}, without={"tensorflow": _mean})
def test_replicas_are_worth_accumulation(runs: Runs, name: str, config: RunConfig) -> None:
    """R replicas that accumulate G micro-batches learn what one that accumulates R x G learns, by sums or by means."""
    alone = replace(config, replicas=1, gradient_accumulation=config.replicas * config.gradient_accumulation)

    runs.compare_trainings(name, config, runs.train(name, alone), ["weights"])
