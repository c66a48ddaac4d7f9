"""Nets that estimators train: as the oracle says, as the host does, and as the other ways to train on IPUs do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.tolerance.runs import ArrayTolerance
from ipu_conformance.run import RunConfig, learning_rate, optimizer

from ...training import Runs, TwoRunTolerance, configured, cut, expected, inferred, tolerance, uncut
from ..training.config import counted
from .nets import ADAM, EstimatedNet, Record, estimated, trained
from .programs import Estimators

pytestmark = pytest.mark.requires("tensorflow_estimator")

SINGLE, MIXED = estimated(3, 2, 1), estimated(4, 3, 2)


def named(rows: Dict[str, RunConfig]) -> List[Any]:
    """Nets with configurations as parameters; the id of each begins with the name of the net."""
    return [
        pytest.param(key.split("-")[0], *row.values, id=key, marks=row.marks)
        for key, row in zip(rows, configured(rows))
    ]


def loop_tolerance(losses: np.ndarray, bounds: np.ndarray, runs: int = 1, quotients: int = 1) -> ArrayTolerance:
    """The tolerance of each row's mean: the mean of the tolerances, and a rounding for each sum and each quotient."""
    roundings = losses.shape[1] + quotients
    rounding = roundings * np.finfo(np.float32).eps * np.abs(losses).max(axis=1)
    allowed = runs * (np.reshape(bounds, losses.shape).mean(axis=1) + rounding)
    origin = f"the mean of the losses' tolerances and {roundings} roundings, for {runs} runs"
    return ArrayTolerance(allowed, float(allowed.max()), origin)


def compare_both(got: Record, other: Record, name: str, config: RunConfig) -> None:
    """Two records of the same training differ by no more than each may differ from the oracle."""
    __tracebackhide__ = True
    each = tolerance(name, config)
    check.runs_equivalent(actual=got, expected=other, tolerance=TwoRunTolerance(each), fields=["weights"])
    losses = np.reshape(expected(name, config).losses[0], (config.device_iterations, -1))
    bound = loop_tolerance(losses, each.losses[0].allowed, runs=2)
    check.close(actual=got.losses, expected=other.losses, tolerance=bound, what="the loss of each loop")


def piped(schedule: str, stages: int, *counts: int, **changes: Any) -> RunConfig:
    """A run of the perceptron in stages."""
    return cut("mlp", estimated(*counts, **changes), stages, schedule)


TRAINED = {
    **dict.fromkeys(("linear", "mlp", "convnet", "residual", "tied_weights"), SINGLE),
    "mlp-R2": MIXED,
    "linear-R4": estimated(3, 2, 4),
    "mlp-mean": estimated(3, 2, 1, accumulation_reduction="mean"),
    "mlp-adam": estimated(3, 2, 1, **ADAM),
    "mlp-grouped-2": piped("grouped", 2, 3, 4, 1),
    "mlp-interleaved-4": piped("interleaved", 4, 3, 8, 1, accumulation_reduction="mean"),
    "mlp-sequential-3": piped("sequential", 3, 2, 5, 1),
    "mlp-grouped-2-R2": piped("grouped", 2, 3, 4, 2),
    "mlp-adam-2-R2": piped("sequential", 2, 4, 3, 2, **ADAM),
}
"""Nets that accumulate with momentum on one IPU; replicas, averaged gradients, another optimizer, and pipelines."""


@pytest.mark.parametrize(("name", "config"), named(TRAINED))
def test_a_net_trains_as_specified(shared: Estimators, name: str, config: RunConfig) -> None:
    """Weights are the oracle's, and the loss of a loop is the mean of the oracle's losses.

    A loop is an update, or of a pipeline all updates.
    """
    in_stages = config.number_of_stages > 1
    got = trained(shared, name, config)

    want, allowed = expected(name, config), tolerance(name, config)
    check.runs_equivalent(actual=got, expected=want, tolerance=allowed, fields=["weights"])
    losses = np.reshape(want.losses[0], (1 if in_stages else config.device_iterations, -1))
    bound = loop_tolerance(losses, allowed.losses[0].allowed, quotients=2 if in_stages else 1)
    check.close(actual=got.losses, expected=losses.mean(axis=1), tolerance=bound, what="the loss of each loop")


@pytest.mark.parametrize("schedule", ["interleaved", "sequential"])
@pytest.mark.ipus(2)
def test_a_schedule_changes_no_bit(shared: Estimators, schedule: str) -> None:
    """Every schedule leaves the bits of the grouped one behind."""
    config = TRAINED["mlp-grouped-2"]
    got, grouped = (trained(shared, "mlp", replace(config, schedule=name)) for name in (schedule, "grouped"))

    check.runs_identical(actual=got, expected=grouped, fields=["losses", "weights"])


def test_the_length_of_a_loop_changes_no_bit(shared: Estimators) -> None:
    """All steps in one loop leave the bits of a loop for each update."""
    long = EstimatedNet(shared, "mlp", SINGLE).train(6)

    check.runs_identical(actual=long, expected=trained(shared, "mlp", SINGLE), fields=["weights"])


@pytest.mark.parametrize(("name", "config"), named({"mlp-G2": SINGLE, "convnet-G2": SINGLE, "mlp-G3-R2": MIXED}))
def test_the_stock_estimator_trains_the_same(shared: Estimators, name: str, config: RunConfig) -> None:
    """Accumulation and replicas learn what the stock estimator learns on the host, from large batches."""
    stock = EstimatedNet(shared, name, config).train_stock()

    compare_both(trained(shared, name, config), stock, name, config)


KERAS = optimizer("sgd", momentum=0.5, rate_in_velocity=True)


@pytest.mark.parametrize("config", configured({"G2": SINGLE, "G3-R2": MIXED}))
def test_a_strategy_trains_the_same(shared: Estimators, runs: Runs, config: RunConfig) -> None:
    """Keras in a strategy adds up over replicas where the estimator averages: with its rate divided it is the same."""
    rate = learning_rate(base=config.learning_rate["base"] / config.replicas)
    keras = runs.train("mlp", replace(config, optimizer=KERAS, learning_rate=rate, replica_reduction="sum"))
    losses = np.reshape(keras.losses[0], (config.device_iterations, -1)).mean(axis=1)
    other = Record(dict(keras.weights or {}), losses)

    compare_both(trained(shared, "mlp", config), other, "mlp", config)


PIPED = {
    "grouped-2": piped("grouped", 2, 3, 4, 1),
    "sequential-4": cut("mlp", SINGLE, 4, "sequential"),
    "sequential-2-R2": cut("mlp", MIXED, 2, "sequential"),
}


@pytest.mark.parametrize("config", configured(PIPED))
def test_a_pipeline_trains_the_same(shared: Estimators, config: RunConfig) -> None:
    """An estimator with a pipeline learns what the estimator learns that accumulates on one IPU a replica."""
    got = EstimatedNet(shared, "mlp", config).train(config.gradient_accumulation)

    compare_both(got, trained(shared, "mlp", uncut(config)), "mlp", uncut(config))


INFERENCES = {
    "mlp": counted(4, 1, 1, training=False),
    "mlp-R2": counted(4, 1, 2, training=False),
    "convnet": counted(2, 1, 1, training=False),
    "mlp-staged": cut("mlp", counted(4, 1, 1, training=False), 2),
    "mlp-staged-R2": cut("mlp", counted(4, 1, 2, training=False), 2),
}


@pytest.mark.parametrize(("name", "config"), named(INFERENCES))
def test_a_net_predicts_as_specified(shared: Estimators, name: str, config: RunConfig) -> None:
    """The predictions of all samples are the oracle's outputs, in the order of the data, of a pipeline, too."""
    (want,), (allowed,) = (list(each.values()) for each in inferred(name, config))
    if config.number_of_stages > 1:
        iterations = config.device_iterations // 2
        config = replace(config, training=True, gradient_accumulation=2, device_iterations=iterations)
    got = EstimatedNet(shared, name, config).predict()

    check.close(actual=got.reshape(want.shape), expected=want, tolerance=allowed, what="the predictions")
