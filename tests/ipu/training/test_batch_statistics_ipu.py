"""Batch norm normalises one micro-batch on one replica, whose micro-batches its running statistics follow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from .frame import Runs, data_of, net_of, statistics_by_replica, tolerance
from .table import GRID, chosen, each, row, table

NORMED = chosen(GRID, lambda each: net_of(each.net).statistics)


@each(NORMED)
def test_statistics_are_the_oracle_s(runs: Runs, name: str, config: RunConfig) -> None:
    """Means and variances move once with every micro-batch, recomputed or not."""
    runs.compare(name, config, ["statistics"])


@pytest.mark.emulator
@each(chosen(NORMED, lambda each: each.config.replicas > 1))
def test_each_replica_has_its_own_statistics(runs: Runs, name: str, config: RunConfig) -> None:
    """Every replica's statistics follow its own micro-batches, the third's as well as the first's."""
    held = runs.train(name, config).statistics_by_replica or ()
    values, allowed = statistics_by_replica(name, config)

    check.equal(actual=len(held), expected=config.replicas, what="the number of replicas with statistics")
    for (replica, statistic), value in values.items():
        what = f"{statistic} of replica {replica}"
        check.close(actual=held[replica][statistic], expected=value, tolerance=allowed[replica, statistic], what=what)


ALONE = table(row("bn_convnet", (1, 2, 3)), row("bn_convnet", (2, 1, 3), "adamw"))


@each(ALONE)
def test_statistics_are_those_of_one_replica(runs: Runs, name: str, config: RunConfig) -> None:
    """One replica that sees all micro-batches has other statistics than the first of several."""
    together = config.replicas * config.gradient_accumulation
    alone = replace(config, replicas=1, gradient_accumulation=together)
    check.identical(
        actual=data_of(name, alone).inputs, expected=data_of(name, config).inputs, what="the samples of both runs"
    )
    run, other = runs.train(name, config).statistics or {}, runs.train(name, alone).statistics or {}

    for statistic, allowed in tolerance(name, config).statistics.items():
        check.apart(actual=run[statistic], other=other[statistic], tolerance=allowed, what=statistic)


@each(table(row("bn_convnet", (2, 3, 1)), row("bn_convnet", (1, 4, 1), "adam")))
def test_a_large_batch_is_normalised_otherwise(runs: Runs, name: str, config: RunConfig) -> None:
    """Samples in small micro-batches and in one large one are normalised, and so learned, differently."""
    large = replace(config, gradient_accumulation=1, micro_batch=config.micro_batch * config.gradient_accumulation)
    run, other = runs.train(name, config).weights or {}, runs.train(name, large).weights or {}
    allowed = tolerance(name, config).weights

    for weight in ("conv1.weight", "bn2.weight", "fc2.bias"):
        check.apart(actual=run[weight], other=other[weight], tolerance=allowed[weight], what=weight)
