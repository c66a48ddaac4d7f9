"""Batch norm normalises one micro-batch on one replica, whose micro-batches its running statistics follow."""

from __future__ import annotations

import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from .frame import Runs, net_of, statistics_by_replica
from .table import GRID, chosen, each, row, table
from .tiny import SAMPLES, THREE_NORMS

NORMED = table(
    chosen(GRID, lambda each: net_of(each.net).statistics),
    row(THREE_NORMS, (1, 8, 1), "sgd", "pipelined-4", recompute=True, micro_batch=SAMPLES),
)


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
