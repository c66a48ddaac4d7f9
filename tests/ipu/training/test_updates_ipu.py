"""Losses, outputs and weights of every update are the oracle's, whatever the counts, the cut and the optimizer."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

import numpy as np
import pytest

from ipu_conformance import check, frameworks
from ipu_conformance.nets import Data, Net
from ipu_conformance.oracle.training import train as oracle
from ipu_conformance.run import RunConfig

from .frame import Runs, data_of, expected, net_of, tolerance
from .table import GRID, chosen, each, row, table
from .tiny import PAIR, SAMPLES, TOWER


@each(GRID)
def test_losses_are_the_oracle_s(runs: Runs, name: str, config: RunConfig) -> None:
    """Every micro-batch of every step gives its loss, in its place."""
    runs.compare(name, config, ["losses"])


@each(GRID)
def test_outputs_are_the_oracle_s(runs: Runs, name: str, config: RunConfig) -> None:
    """Every sample gives its output, in its place."""
    runs.compare(name, config, ["outputs"])


@each(GRID)
def test_weights_are_the_oracle_s(runs: Runs, name: str, config: RunConfig) -> None:
    """After the last step every weight is where the oracle's is."""
    runs.compare(name, config, ["weights"])


MIXED = chosen(GRID, lambda each: each.config.counts_id.count("1") == 0)


@each(MIXED)
def test_losses_come_back_in_the_order_of_the_feed(runs: Runs, name: str, config: RunConfig) -> None:
    """Read in memory's order the losses stand as [device iteration, accumulation, replica]."""
    allowed = tolerance(name, config).losses[0]
    counts = (config.device_iterations, config.gradient_accumulation, config.replicas)

    check.outputs_in_order(
        actual=np.ravel(runs.train(name, config).losses[0]),
        expected=np.ravel(expected(name, config).losses[0]),
        tolerance=replace(allowed, allowed=np.ravel(allowed.allowed)),
        what="the losses",
        factors=dict(zip(("device iteration", "accumulation", "replica"), counts)),
    )


FIVE = table(
    row("mlp", (1, 3, 2), "adam", steps=5),
    row("bn_convnet", (1, 2, 3), "momentum", steps=5),
    row("tied_weights", (1, 4, 1), "adamw", "pipelined-2", steps=5),
)


@each(FIVE)
@pytest.mark.parametrize("updates", [1, 2, 5])
def test_every_update_goes_on_where_the_last_one_ended(runs: Runs, name: str, config: RunConfig, updates: int) -> None:
    """The weights after one, two and five calls are the oracle's: accumulators are empty again, state is kept."""
    weights = (runs.train(name, config).weights_by_step or ())[updates - 1]
    wanted, allowed = expected(name, config, updates), tolerance(name, config, updates)

    for weight, value in (wanted.weights or {}).items():
        what = f"{weight} after update {updates}"
        check.close(actual=weights[weight], expected=value, tolerance=allowed.weights[weight], what=what)


TOGETHER = table(
    row("mlp", (3, 2, 1), "adam"),
    row("mlp", (5, 1, 2), "momentum"),
    row("mlp", (3, 4, 2), "momentum", "pipelined-2"),
)


@each(TOGETHER)
def test_weights_are_updated_once_a_device_iteration(runs: Runs, name: str, config: RunConfig) -> None:
    """One call of several device iterations leaves the bits of as many calls of one."""
    apart = replace(config, device_iterations=1, steps=config.device_iterations)

    check.runs_identical(
        actual=runs.train(name, config), expected=runs.train(name, apart), fields=["weights"], net=net_of(name)
    )


NATIVE = table(
    row("mlp", (3, 1, 1), "adam", steps=2),
    row("bn_convnet", (3, 1, 1), "momentum", steps=2),
    row("residual", (2, 4, 1), "rmsprop"),
    row("tied_weights", (2, 3, 1), "adamw"),
    row("convnet", (1, 5, 1), "sgd"),
)


def _own_kernels(config: RunConfig) -> Optional[str]:
    return "rmsprop on the host as on a device" if config.optimizer.name == "rmsprop" else None


@each(NATIVE, without={"paddle": _own_kernels})
def test_the_stock_framework_trains_the_same(runs: Runs, name: str, config: RunConfig) -> None:
    """The same program on the host, without any IPU and fed all samples of an update, learns the same."""
    runs.compare_trainings(name, config, runs.native(name, config))


PARTLY = table(
    row(PAIR, (1, 4, 5), "sgd", micro_batch=SAMPLES),
    row(TOWER, (1, 6, 3), "adamw", "pipelined-3", micro_batch=SAMPLES),
)


@each(PARTLY)
@pytest.mark.parametrize("place", [0, -1], ids=["first", "last"])
def test_a_frozen_layer_stays_and_the_others_learn(runs: Runs, name: Net, config: RunConfig, place: int) -> None:
    """The weights of a frozen layer keep their bits; all others move, and have the bits that they have anyway."""
    layer = name.layers[place].name
    whole, partly = runs.train(name, config).weights or {}, runs.train(name, config, frozen=(layer,)).weights or {}
    start, kept = name.initial_weights(config.seed), frameworks.weights_of(name, [layer])

    for weight, value in partly.items():
        check.identical(actual=value, expected=start[weight] if weight in kept else whole[weight], what=weight)
        if weight not in kept:
            check.differs(actual=value, other=start[weight], what=weight)


BROKEN = table(
    row("linear", (2, 3, 4), "momentum"),
    row("linear", (2, 5, 1), "adam"),
)


@each(BROKEN)
def test_what_is_not_a_number_reaches_the_weights(runs: Runs, name: str, config: RunConfig) -> None:
    """One number that is none, in the last micro-batch of all, spoils its loss and then every weight."""
    whole = data_of(name, config)
    inputs = whole.inputs.copy()
    inputs[(-1,) * inputs.ndim] = np.nan
    wanted = oracle.train(net_of(name), Data(inputs, whole.labels), config)

    run = runs.driver.train(net_of(name), config, Data(inputs, whole.labels))

    spoiled = np.isnan(np.ravel(run.losses[-1]))
    check.equal(actual=spoiled.tolist(), expected=np.isnan(np.ravel(wanted.losses[-1])).tolist(), what="spoiled losses")
    for weight, value in (wanted.weights or {}).items():
        share = float(np.isnan((run.weights or {})[weight]).mean())
        what = f"the share of {weight} that is no number"
        check.equal(actual=share, expected=float(np.isnan(value).mean()), what=what)
