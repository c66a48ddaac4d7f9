"""Nets that an IPUEstimator trains: as the oracle says, as the host does, and as the other ways to train on IPUs do."""

from __future__ import annotations

from dataclasses import replace

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


def compare(got: Record, name: str, config: RunConfig) -> None:
    """Weights are the oracle's, and the loss of each update's loop is the mean of the oracle's losses."""
    __tracebackhide__ = True
    want, allowed = expected(name, config), tolerance(name, config)
    check.runs_equivalent(actual=got, expected=want, tolerance=allowed, fields=["weights"])
    losses = np.reshape(want.losses[0], (config.device_iterations, -1))
    check.close(
        actual=got.losses,
        expected=losses.mean(axis=1),
        tolerance=loop_tolerance(losses, allowed.losses[0].allowed),
        what="the loss of each loop",
    )


def loop_tolerance(losses: np.ndarray, bounds: np.ndarray, runs: int = 1) -> ArrayTolerance:
    """The tolerance of each row's mean: the mean of the tolerances, and a rounding for each sum and the quotient."""
    rounding = (losses.shape[1] + 1) * np.finfo(np.float32).eps * np.abs(losses).max(axis=1)
    allowed = runs * (np.reshape(bounds, losses.shape).mean(axis=1) + rounding)
    origin = f"the mean of the losses' tolerances and {losses.shape[1] + 1} roundings, for {runs} runs"
    return ArrayTolerance(allowed, float(allowed.max()), origin)


def compare_both(got: Record, other: Record, name: str, config: RunConfig) -> None:
    """Two records of the same training differ by no more than each may differ from the oracle."""
    __tracebackhide__ = True
    each = tolerance(name, config)
    check.runs_equivalent(actual=got, expected=other, tolerance=TwoRunTolerance(each), fields=["weights"])
    losses = np.reshape(expected(name, config).losses[0], (config.device_iterations, -1))
    bound = loop_tolerance(losses, each.losses[0].allowed, runs=2)
    check.close(actual=got.losses, expected=other.losses, tolerance=bound, what="the loss of each loop")


@pytest.mark.parametrize(
    "name",
    ["linear", "mlp", "convnet", "residual", "tied_weights"],
)
def test_a_net_trains_as_specified(shared: Estimators, name: str) -> None:
    """With accumulation and momentum, weights and losses are the oracle's."""
    compare(trained(shared, name, SINGLE), name, SINGLE)


REPLICATED = {"mlp-R2": MIXED, "linear-R4": estimated(3, 2, 4)}


@pytest.mark.parametrize(
    ("name", "config"),
    [pytest.param(key.split("-")[0], *row.values, id=key, marks=row.marks) for key, row in
     zip(REPLICATED, configured(REPLICATED))],
)  # fmt: skip
def test_replicas_train_as_specified(shared: Estimators, name: str, config: RunConfig) -> None:
    """Replicas that accumulate, meet and update learn what the oracle learns."""
    compare(trained(shared, name, config), name, config)


REDUCED = {
    "mean": estimated(3, 2, 1, accumulation_reduction="mean"),
    "adam": estimated(3, 2, 1, **ADAM),
}


@pytest.mark.parametrize("config", configured(REDUCED))
def test_other_rules_train_as_specified(shared: Estimators, config: RunConfig) -> None:
    """Averaged gradients and another optimizer follow the oracle as well."""
    compare(trained(shared, "mlp", config), "mlp", config)


def test_the_length_of_a_loop_changes_no_bit(shared: Estimators) -> None:
    """All steps in one loop leave the bits of a loop for each update."""
    long = EstimatedNet(shared, "mlp", SINGLE).train(loop=6)

    check.runs_identical(actual=long, expected=trained(shared, "mlp", SINGLE), fields=["weights"])


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("mlp", SINGLE),
        ("convnet", SINGLE),
        pytest.param("mlp", MIXED, marks=pytest.mark.ipus(2)),
    ],
    ids=["mlp-G2", "convnet-G2", "mlp-G3-R2"],
)
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
    "grouped-2": cut("mlp", estimated(3, 4, 1), 2),
    "sequential-4": cut("mlp", SINGLE, 4, "sequential"),
    "sequential-2-R2": cut("mlp", MIXED, 2, "sequential"),
}


@pytest.mark.parametrize("config", configured(PIPED))
def test_a_pipeline_trains_the_same(shared: Estimators, config: RunConfig) -> None:
    """An estimator with a pipeline learns what the estimator learns that accumulates on one IPU a replica."""
    piped = EstimatedNet(shared, "mlp", config).train_pipeline()

    compare_both(piped, trained(shared, "mlp", uncut(config)), "mlp", uncut(config))


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
def test_a_net_predicts_as_specified(shared: Estimators, name: str, config: RunConfig) -> None:
    """The predictions of all samples are the oracle's outputs, in the order of the data."""
    (want,), (allowed,) = (list(each.values()) for each in inferred(name, config))
    got = EstimatedNet(shared, name, config).predict()

    check.close(actual=got.reshape(want.shape), expected=want, tolerance=allowed, what="the predictions")
