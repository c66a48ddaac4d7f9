"""The network on small pictures converges with an IPUEstimator as with a stock one."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable

import pytest

from ipu_conformance.oracle.convergence.band import Verdict
from ipu_conformance.workloads.estimator_cnn.reference import SHORT, train
from ipu_conformance.workloads.reference import verdict

pytestmark = pytest.mark.requires("tensorflow_estimator")


def test_the_workload_converges_like_its_baseline(converges: Callable[[Verdict], None]) -> None:
    """The losses of runs with new seeds lie in the band of the native runs, neither below nor above."""
    runs = [train(replace(SHORT.settings, seed=seed), native=False) for seed in (1000, 1001, 1002)]

    converges(verdict(SHORT, runs))
