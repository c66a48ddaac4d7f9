"""Half precision: nets in float16 train within what float16 explains, and not within what float32 does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig, learning_rate

from .frame import Runs, net_of, tolerance, uncut
from .table import chosen, each, row, table

GENTLE = learning_rate(base=0.0625)
HALF = table(
    row("linear", (2, 5, 3), dtype="float16", learning_rate=GENTLE),
    row("mlp", (2, 3, 1), dtype="float16", learning_rate=GENTLE),
    row("residual", (2, 3, 1), dtype="float16", learning_rate=GENTLE),
    row("tied_weights", (1, 3, 2), dtype="float16", learning_rate=GENTLE),
    row("mlp", (2, 3, 1), "adam", dtype="float16"),
    row("mlp", (1, 6, 2), at="pipelined-3", dtype="float16", learning_rate=GENTLE),
    row("tied_weights", (1, 4, 1), at="pipelined-2", dtype="float16", learning_rate=GENTLE),
    row("mlp", (2, 3, 1), at="sharded-4", dtype="float16", learning_rate=GENTLE),
    row("mlp", (2, 5, 3), word="scaled", dtype="float16", learning_rate=GENTLE, loss_scale=64.0),
    row("mlp", (2, 5, 3), word="partials", dtype="float16", learning_rate=GENTLE, partials="float16"),
)


@each(HALF)
def test_a_net_in_half_trains_as_specified(runs: Runs, name: str, config: RunConfig) -> None:
    """Weights, inputs and what stages hand on in float16 give the oracle's run within the tolerance of float16."""
    runs.compare(name, config)


@each(chosen(HALF, lambda each: each.config.stages and each.net != "tied_weights"))
def test_a_cut_changes_no_bit_in_half(runs: Runs, name: str, config: RunConfig) -> None:
    """Pipelined, sharded and single execution agree bit for bit in float16 too."""
    check.runs_identical(actual=runs.train(name, config), expected=runs.train(name, uncut(config)), net=net_of(name))


@pytest.mark.emulator
@each(chosen(HALF, lambda each: each.config.replicas > 1))
def test_replicas_in_half_hold_identical_weights(runs: Runs, name: str, config: RunConfig) -> None:
    """Replicas in float16 hold the same bits."""
    check.replicas_identical(runs.train(name, config).weights_by_replica, step=config.steps)


@each(chosen(HALF, lambda each: each.config.partials == "float32"))
def test_half_is_coarser_than_single(runs: Runs, name: str, config: RunConfig) -> None:
    """A run in float16 is farther from the oracle's than float32 explains."""
    single = tolerance(name, replace(config, dtype="float32"))
    losses = runs.train(name, config).losses[0]
    exact = runs.train(name, replace(config, dtype="float32")).losses[0]

    check.apart(actual=losses, other=exact, tolerance=single.losses[0], what="the losses")


ROUNDED = table(
    row("mlp", (2, 5, 3), word="stochastic", dtype="float16", learning_rate=GENTLE, stochastic_rounding=True),
    row(
        "tied_weights",
        (1, 3, 2),
        word="stochastic",
        dtype="float16",
        learning_rate=GENTLE,
        stochastic_rounding=True,
    ),
)


@each(ROUNDED)
def test_stochastic_rounding_trains_as_specified(runs: Runs, name: str, config: RunConfig) -> None:
    """Rounding at random stays within what the oracle's random rounding gives."""
    runs.compare(name, config)
