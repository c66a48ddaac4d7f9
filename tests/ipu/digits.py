"""The digits that a small net learns on every front end, and how well it is to learn them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ipu_conformance.oracle.convergence import baseline
from ipu_conformance.oracle.convergence.band import band, judge
from ipu_conformance.run import RunConfig
from ipu_conformance.workloads.oracle_digits import WORKLOADS

WORKLOAD = WORKLOADS["oracle-mlp"]
SEED = 100
"""A seed of its own; the baseline's are 0 to 19."""


def learned_as_recorded(driver: Any, config: RunConfig) -> None:
    """The accuracy after every epoch is neither lower nor higher than the spread of the reference runs allows."""
    __tracebackhide__ = True
    recorded = baseline.load(Path("oracle-mlp"))
    curve = WORKLOAD.accuracies(lambda net, data, config: driver.train(net, config, data), replace(config, seed=SEED))
    verdict = judge(band(recorded.values), [curve], metric=recorded.metric)
    assert verdict.passed, verdict.sentence
