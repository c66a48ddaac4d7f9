"""Nets that an IPUEstimator trains: as the oracle says, as the host does, and as the other ways to train on IPUs do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.run_tolerance import ArrayTolerance
from ipu_conformance.run import RunConfig, learning_rate, optimiser

from .estimator_nets import EstimatedNet, Record
from .estimator_programs import Estimators, made_estimators
from .specified import (
    Apart,
    Runs,
    configured,
    counted,
    cut,
    expected,
    inferred,
    shared_runs,
    tolerance,
    uncut,
)

__all__ = ["made_estimators", "shared_runs"]

RULES: Dict[str, Any] = {"optimiser": optimiser("sgd", momentum=0.5), "replica_reduction": "mean"}
"""The momentum of TensorFlow 1, and what CrossReplicaOptimizer does."""
ADAM = {
    "optimiser": optimiser("adam", beta1=0.5, beta2=0.75, epsilon=1e-7, epsilon_at="uncorrected"),
    "learning_rate": learning_rate(base=0.0078125),
}
"""The Adam of TensorFlow 1; the decays, and one less them, are exact in float32."""


def estimated(iterations: int, accumulation: int, replicas: int, **changes: Any) -> RunConfig:
    """A configuration as an estimator trains it."""
    return counted(iterations, accumulation, replicas, **{**RULES, **changes})


SINGLE = estimated(3, 2, 1)


def compare(got: Record, name: str, config: RunConfig) -> None:
    """Weights are the oracle's, and the loss of each update's loop is the mean of the oracle's losses."""
    __tracebackhide__ = True
    want, allowed = expected(name, config), tolerance(name, config)
    check.runs_equivalent(actual=got, expected=want, tolerance=allowed, fields=["weights"])
    losses, bounds = (
        np.reshape(each, (config.device_iterations, -1)) for each in (want.losses[0], allowed.losses[0].allowed)
    )
    check.close(
        actual=got.losses,
        expected=losses.mean(axis=1),
        tolerance=loop_tolerance(losses, bounds),
        what="the losses of loops",
    )


def loop_tolerance(losses: np.ndarray, bounds: np.ndarray, runs: int = 1) -> ArrayTolerance:
    """The tolerance of each row's mean: the mean of the tolerances, and a rounding for each sum and the quotient."""
    rounding = (losses.shape[1] + 1) * np.finfo(np.float32).eps * np.abs(losses).max(axis=1)
    allowed = runs * (bounds.mean(axis=1) + rounding)
    origin = f"the mean of the losses' tolerances and {losses.shape[1] + 1} roundings, for {runs} runs"
    return ArrayTolerance(allowed, float(allowed.max()), origin)


def compare_both(got: Record, other: Record, name: str, config: RunConfig) -> None:
    """Two records of the same training differ by no more than each may differ from the oracle."""
    __tracebackhide__ = True
    each = tolerance(name, config)
    check.runs_equivalent(actual=got, expected=other, tolerance=Apart(each), fields=["weights"])
    shape = (config.device_iterations, -1)
    bounds = np.reshape(each.losses[0].allowed, shape)
    check.close(
        actual=got.losses,
        expected=other.losses,
        tolerance=loop_tolerance(np.reshape(expected(name, config).losses[0], shape), bounds, runs=2),
        what="the losses of loops",
    )


@pytest.mark.parametrize("name", ["linear", "mlp", "convnet", "residual", "tied_weights"])
def test_a_net_trains_as_specified(estimators: Estimators, name: str) -> None:
    """With accumulation and momentum, weights and losses are the oracle's."""
    compare(EstimatedNet(estimators, name, SINGLE).train(), name, SINGLE)


REPLICATED = {"mlp-R2": estimated(4, 3, 2), "mlp-R4": estimated(2, 1, 4), "convnet-R2": estimated(2, 1, 2)}


@pytest.mark.parametrize(
    ("name", "config"),
    [pytest.param(key.split("-")[0], *row.values, id=key, marks=row.marks) for key, row in
     zip(REPLICATED, configured(REPLICATED))],
)  # fmt: skip
def test_replicas_train_as_specified(estimators: Estimators, name: str, config: RunConfig) -> None:
    """Replicas that accumulate, meet and update learn what the oracle learns."""
    compare(EstimatedNet(estimators, name, config).train(), name, config)


REDUCED = {
    "mean": estimated(3, 2, 1, accumulation_reduction="mean"),
    "running_mean": estimated(2, 3, 1, accumulation_reduction="running_mean"),
    "adam": estimated(3, 2, 1, **ADAM),
    "adam-R2": estimated(4, 1, 2, **ADAM),
}


@pytest.mark.parametrize("config", configured(REDUCED))
def test_other_rules_train_as_specified(estimators: Estimators, config: RunConfig) -> None:
    """Gradients that are averaged, and another optimizer, follow the oracle, too."""
    compare(EstimatedNet(estimators, "mlp", config).train(), "mlp", config)


def test_the_length_of_a_loop_changes_no_bit(estimators: Estimators) -> None:
    """All steps in one loop leave the bits of a loop for each update."""
    net = EstimatedNet(estimators, "mlp", SINGLE)
    long, short = net.train(loop=SINGLE.device_iterations * SINGLE.gradient_accumulation), net.train()

    for name, value in short.weights.items():
        check.identical(actual=long.weights[name], expected=value, what=name)


@pytest.mark.parametrize("name", ["mlp", "convnet", "residual"])
def test_the_stock_estimator_trains_the_same(estimators: Estimators, name: str) -> None:
    """The same model function learns the same on the host, with the stock estimator."""
    config = estimated(3, 1, 1)
    net = EstimatedNet(estimators, name, config)

    compare_both(net.train(), net.train_stock(), name, config)


LARGE = {"G2": SINGLE, "R2": estimated(4, 1, 2), "G3-R2": estimated(4, 3, 2)}


@pytest.mark.parametrize("config", configured(LARGE))
def test_the_stock_estimator_trains_the_same_on_large_batches(estimators: Estimators, config: RunConfig) -> None:
    """Accumulation and replicas learn what a large batch does on the host."""
    net = EstimatedNet(estimators, "mlp", config)

    compare_both(net.train(), net.train_stock(), "mlp", config)


KERAS = optimiser("sgd", momentum=0.5, rate_in_velocity=True)


@pytest.mark.parametrize("config", configured({"G2": SINGLE, "G3-R2": estimated(4, 3, 2)}))
def test_a_strategy_trains_the_same(estimators: Estimators, runs: Runs, config: RunConfig) -> None:
    """Keras in a strategy adds up over replicas where the estimator averages: with its rate divided it is the same."""
    rate = learning_rate(base=config.learning_rate["base"] / config.replicas)
    keras = runs.train("mlp", replace(config, optimiser=KERAS, learning_rate=rate, replica_reduction="sum"))
    losses = np.reshape(keras.losses[0], (config.device_iterations, -1)).mean(axis=1)
    other = Record(dict(keras.weights or {}), losses)

    compare_both(EstimatedNet(estimators, "mlp", config).train(), other, "mlp", config)


PIPED = {
    "grouped-2": cut("mlp", estimated(3, 4, 1), 2),
    "sequential-3": cut("mlp", estimated(2, 3, 1), 4, "sequential"),
    "interleaved-2-R2": cut("mlp", estimated(3, 4, 2), 2, "interleaved"),
}


@pytest.mark.parametrize("config", configured(PIPED))
def test_a_pipeline_trains_the_same(estimators: Estimators, config: RunConfig) -> None:
    """An estimator with a pipeline learns what the estimator learns that accumulates on one IPU a replica."""
    whole = uncut(config)

    compare_both(
        EstimatedNet(estimators, "mlp", config).train_pipeline(),
        EstimatedNet(estimators, "mlp", whole).train(),
        "mlp",
        whole,
    )


INFERENCES = {
    "mlp": counted(4, 1, 1, training=False),
    "mlp-R2": counted(4, 1, 2, training=False),
    "convnet": counted(2, 1, 1, training=False),
}


@pytest.mark.parametrize(
    ("name", "config"),
    [pytest.param(key.split("-")[0], *row.values, id=key, marks=row.marks) for key, row in
     zip(INFERENCES, configured(INFERENCES))],
)  # fmt: skip
def test_a_net_predicts_as_specified(estimators: Estimators, name: str, config: RunConfig) -> None:
    """The predictions of all samples are the oracle's outputs, in the order of the data."""
    (want,), (allowed,) = (list(each.values()) for each in inferred(name, config))
    got = EstimatedNet(estimators, name, config).predict()

    check.close(actual=got.reshape(want.shape), expected=want, tolerance=allowed, what="the predictions")
