"""A net with kinks and curves that a pipelined estimator trains gives the oracle's weights and losses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.tolerance.runs import ArrayTolerance
from ipu_conformance.run import RunConfig

from ...training import configured, cut, expected, inferred, tolerance
from ..training.config import FACTORS, counted
from .nets import ADAM, EstimatedNet, estimated, pipelined
from .programs import Estimators

pytestmark = pytest.mark.requires("tensorflow_estimator")


def piped(schedule: str, stages: int, iterations: int, accumulation: int, replicas: int, **changes: Any) -> RunConfig:
    """A run of the net in stages."""
    return cut("mlp", estimated(iterations, accumulation, replicas, **changes), stages, schedule)


TRAINED = {
    "grouped-2": piped("grouped", 2, 3, 4, 1),
    "interleaved-4": piped("interleaved", 4, 3, 8, 1, accumulation_reduction="mean"),
    "sequential-3": piped("sequential", 3, 2, 5, 1),
    "grouped-2-R2": piped("grouped", 2, 3, 4, 2),
    "adam-R2": piped("sequential", 2, 4, 3, 2, **ADAM),
}


@pytest.mark.parametrize("config", configured(TRAINED))
def test_a_net_trains_as_specified(shared: Estimators, config: RunConfig) -> None:
    """The weights after a loop are the oracle's, and the loss is the mean of the oracle's losses."""
    got = pipelined(shared, "mlp", config)

    allowed = tolerance("mlp", config)
    check.runs_equivalent(actual=got, expected=expected("mlp", config), tolerance=allowed, fields=["weights"])
    losses = np.ravel(expected("mlp", config).losses[0])
    rounding = (losses.size + 2) * np.finfo(np.float32).eps * np.abs(losses).max()
    total = np.mean(allowed.losses[0].allowed) + rounding
    check.close(
        actual=np.float64(got.losses[-1]),
        expected=losses.mean(),
        tolerance=ArrayTolerance(total, float(total), "the mean of the losses' tolerances and a rounding for each"),
        what="the loss of the loop",
    )


@pytest.mark.parametrize("schedule", ["interleaved", "sequential"])
@pytest.mark.ipus(2)
def test_a_schedule_changes_no_bit(shared: Estimators, schedule: str) -> None:
    """Every schedule leaves the bits of the grouped one behind."""
    config = TRAINED["grouped-2"]
    got, grouped = (pipelined(shared, "mlp", replace(config, schedule=name)) for name in (schedule, "grouped"))

    check.runs_identical(actual=got, expected=grouped, fields=["losses", "weights"])


@pytest.mark.parametrize(
    "config",
    configured({"R1": cut("mlp", replace(FACTORS, device_iterations=4, gradient_accumulation=1, training=False), 2),
                "R2": cut("mlp", counted(4, 1, 2, training=False), 2)}),
)  # fmt: skip
def test_a_net_predicts_as_specified(estimators: Estimators, config: RunConfig) -> None:
    """The predictions of a pipeline are the oracle's outputs, one for each sample in the order of the data."""
    micro_batches = config.device_iterations * config.gradient_accumulation
    piped_config = replace(config, training=True, gradient_accumulation=2, device_iterations=micro_batches // 2)
    got = EstimatedNet(estimators, "mlp", piped_config).predict_pipeline()

    (want,), (allowed,) = (list(each.values()) for each in inferred("mlp", config))
    check.close(actual=got.reshape(want.shape), expected=want, tolerance=allowed, what="the predictions")
