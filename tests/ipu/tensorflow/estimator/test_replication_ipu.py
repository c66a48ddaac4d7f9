"""Replicas, shards and accumulation in an IPUEstimator: who takes what, and how gradients meet."""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from ..exact import START, check_weight, counts, samples, trained
from .programs import WEIGHT, Estimators, Trained, means, unwrapped

pytestmark = [pytest.mark.ipus(2), pytest.mark.requires("tensorflow_estimator")]

STEPS = 4


def check_losses(left: Trained, expected: np.ndarray, loop: int) -> None:
    """The loss of each loop is the mean over its steps and replicas."""
    __tracebackhide__ = True
    check.equal(actual=list(left.losses.values()), expected=means(expected, loop), what="the loss of each loop")


@pytest.mark.parametrize(
    ("replicas", "loop"), [pytest.param(*row, marks=pytest.mark.ipus(row[0])) for row in ((2, 1), (2, 2), (4, 2))]
)
def test_replicas_take_neighbours_and_the_mean(shared: Estimators, replicas: int, loop: int) -> None:
    """In step i replica r trains with element i·R + r, and all apply the mean of their gradients in one step.

    The loss of a loop is the mean over its steps and over replicas.
    """
    left = shared.trained(STEPS, loop, replicas)

    check_weight(left.weight, counts(STEPS, replicas=replicas))
    check.equal(actual=left.step, expected=STEPS, what=f"the global step of {replicas} replicas")
    check_losses(left, trained(1, counts(STEPS, replicas=replicas)).losses, loop)


def accumulating(e: Estimators) -> Any:
    """A model function whose optimizer accumulates gradients, and does nothing across replicas."""
    return e.product(lambda optimizer: e.ipu.optimizers.GradientAccumulationOptimizerV2(optimizer, 2))


@pytest.mark.parametrize("alone", [lambda e: e.product(unwrapped), accumulating], ids=["plain", "accumulating"])
def test_replicas_must_meet(estimators: Estimators, alone: Callable[[Estimators], Any]) -> None:
    """Replicas that train without any operation across them would go apart: they are refused."""
    estimator = estimators.make(alone(estimators), replicas=2)

    with check.raises(ValueError, match=r"(?i)replica", what="training of two replicas that never meet"):
        estimator.train(estimators.feed(8), steps=4)
    check.equal(actual=estimators.checkpoints(estimator), expected=[], what="the steps of the checkpoints")


def reducing(e: Estimators) -> Any:
    """A model function that reduces gradients by itself."""

    def train(loss: Any) -> Any:
        optimizer, add_up = e.descent(), e.ipu.cross_replica_ops.cross_replica_sum
        pairs = [(add_up(gradient) / 2, weight) for gradient, weight in optimizer.compute_gradients(loss)]
        return optimizer.apply_gradients(pairs)

    return e.trains(train=train)


MET: Dict[str, Tuple[Callable[[Estimators], Any], RunConfig]] = {
    "any-operation-will-do": (reducing, counts(STEPS, replicas=2)),
    "one-replica-need-not": (lambda e: e.product(e.ipu.optimizers.CrossReplicaOptimizer), counts(STEPS)),
    "momentum": (lambda e: e.product(replicas=2, momentum=0.5), counts(STEPS, replicas=2, momentum=0.5)),
}


@pytest.mark.parametrize("name", MET)
def test_replicas_meet(estimators: Estimators, name: str) -> None:
    """Replicas train with means from any operation across them; the state of an optimizer lasts from loop to loop."""
    model_fn, config = MET[name]
    left = estimators.train(STEPS, model_fn=model_fn(estimators), replicas=config.replicas)

    check_weight(left.weight, config)


@pytest.mark.parametrize(
    ("replicas", "place"),
    [pytest.param(number, "host", marks=pytest.mark.ipus(number)) for number in (1, 2, 4)] + [(2, "device")],
)
def test_evaluation_sees_the_elements_of_all_replicas(estimators: Estimators, replicas: int, place: str) -> None:
    """Loss and metrics are means over steps × R elements, wherever the metrics are; nothing has to meet."""

    def metrics(values: Any) -> Dict[str, Any]:
        return {"mean": estimators.v1.metrics.mean(values)}

    def also(mode: Any, features: Any, products: Any) -> Dict[str, Any]:
        values = 3 * products
        return {"eval_metrics": (metrics, [values])} if place == "host" else {"eval_metric_ops": metrics(values)}

    estimator = estimators.make(estimators.product(replicas=replicas, also=also), replicas=replicas)
    found = estimator.evaluate(estimators.feed(4 * replicas, 2), steps=4)

    mean = START[0] * samples(4 * replicas * 2).astype(np.float64).mean()
    # The loss of a batch of two is the sum of its products.
    expected = {"mean": 3 * mean, "loss": 2 * mean, "global_step": 4}
    check.equal(actual=found, expected=expected, what=f"the evaluation on {replicas} replicas")


@pytest.mark.parametrize("replicas", [2, pytest.param(4, marks=pytest.mark.ipus(4))])
def test_predictions_of_replicas_come_in_the_order_of_the_input(estimators: Estimators, replicas: int) -> None:
    """Predictions follow the elements, whichever replica made them."""
    feed = estimators.feed(4 * replicas, 2)
    predictions = estimators.call(estimators.make(replicas=replicas), "predict", feed, 8 * replicas)

    actual = np.array([each["product"] for each in predictions])
    check.identical(actual=actual, expected=START[0] * samples(8 * replicas), what="the products")


def test_replicas_go_on_from_a_checkpoint(estimators: Estimators) -> None:
    """A checkpoint has the variables of one replica; a second training restores every replica."""
    estimator = estimators.make(estimators.product(replicas=2, momentum=0.5), replicas=2)
    estimator.train(estimators.feed(4), steps=2)
    names = sorted(estimator.get_variable_names())
    estimator.train(estimators.feed(4, skip=4), steps=2)

    expected = ["global_step", WEIGHT, f"{WEIGHT}/Momentum"]
    check.equal(actual=names, expected=expected, what="the variables of the checkpoint")
    estimators.check_left(estimator, 4, counts(4, replicas=2, momentum=0.5))


V2 = "GradientAccumulationOptimizerV2"
ACCUMULATED = {
    "2-SUM": (V2, counts(4, 2)),
    "4-SUM": (V2, counts(2, 4)),
    "4-MEAN": (V2, counts(2, 4, accumulation_reduction="mean")),
    "older": ("GradientAccumulationOptimizer", counts(4, 2, momentum=0.5)),
    "CrossReplicaGradientAccumulationOptimizerV2": (f"CrossReplica{V2}", counts(4, 2, 2)),
    "CrossReplicaGradientAccumulationOptimizer": ("CrossReplicaGradientAccumulationOptimizer", counts(4, 2, 2)),
}
"""An optimizer, and the updates, micro-batches and replicas of a training of eight steps."""


@pytest.mark.parametrize(
    ("name", "config"),
    [pytest.param(*row, id=key, marks=pytest.mark.ipus(row[1].replicas)) for key, row in ACCUMULATED.items()],
)
def test_gradients_are_accumulated(estimators: Estimators, name: str, config: RunConfig) -> None:
    """After every so many steps a replica adds up or averages their gradients, and all apply the mean over replicas."""
    methods = estimators.ipu.gradient_accumulation.GradientAccumulationReductionMethod
    reduction = {"reduction_method": methods[config.accumulation_reduction.upper()]} if name == V2 else {}

    def wrap(optimizer: Any) -> Any:
        return getattr(estimators.ipu.optimizers, name)(optimizer, config.gradient_accumulation, **reduction)

    model_fn = estimators.product(wrap, momentum=config.optimizer["momentum"])
    left = estimators.train(8, model_fn=model_fn, loop=4, replicas=config.replicas)

    check_weight(left.weight, config)
    check_losses(left, trained(1, config).losses, 4)
    check.equal(actual=left.step, expected=8, what="the global step")


@pytest.mark.ipus(1)
def test_a_loop_holds_whole_accumulations(estimators: Estimators) -> None:
    """A loop that the mini-batches do not divide fails when it runs."""
    wrapped = estimators.ipu.optimizers.GradientAccumulationOptimizerV2
    estimator = estimators.make(estimators.product(lambda opt: wrapped(opt, 3)), loop=4)

    error = estimators.tf.errors.FailedPreconditionError
    with check.raises(error, match="", what="training with 3 mini-batches in loops of 4"):
        estimator.train(estimators.feed(4), steps=4)


def sharded(estimators: Estimators, replicas: int) -> Any:
    """A model function of two weights, on an IPU each: the loss is x·w0·w1."""

    def loss(features: Any) -> Any:
        value = estimators.tf.reduce_sum(features)
        for shard in (0, 1):
            with estimators.ipu.scopes.ipu_shard(shard):
                value = value * estimators.weight(shard)
        return value

    optimizers = estimators.ipu.optimizers
    wrap = optimizers.CrossReplicaOptimizer if replicas > 1 else unwrapped
    return estimators.trains(
        loss, lambda value: optimizers.ShardedOptimizer(wrap(estimators.descent())).minimize(value)
    )


@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.ipus(4))])
def test_shards_train_as_one_ipu_does(estimators: Estimators, replicas: int) -> None:
    """A model on two IPUs learns what it learns on one."""
    estimator = estimators.make(sharded(estimators, replicas), replicas=replicas, shards=2)
    estimator.train(estimators.feed(2 * replicas), steps=2)
    weights = [estimator.get_variable_value(name) for name in ("w0", "w1")]
    expected = trained(2, counts(2, replicas=replicas))

    check.identical(actual=np.asarray(weights, np.float32), expected=expected.weights, what="the weights of shards")
    check_losses(estimators.left(estimator), expected.losses, 2)


def test_shards_take_no_elements(estimators: Estimators) -> None:
    """A sharded model takes one element a step, however many IPUs it has."""
    estimator = estimators.make(sharded(estimators, 1), shards=2)
    loss = estimator.evaluate(estimators.feed(2), steps=2)["loss"]

    check.equal(actual=loss, expected=START[0] * START[1] * samples(2).mean(), what="the loss of two steps")


@pytest.mark.parametrize("replicas", [1, 2])
def test_replicas_know_their_number(estimators: Estimators, replicas: int) -> None:
    """The model is built so that each replica has its index; there are as many as were asked for."""

    def index(features: Any) -> Any:
        return estimators.tf.cast(estimators.ipu.replication_ops.replication_index(), "float32") + 0 * features

    estimator = estimators.make(estimators.predicts(index), replicas=replicas)
    predictions = estimators.call(estimator, "predict", estimators.feed(4 * replicas), 4)

    indices = [float(each) for each in predictions]
    expected = [float(number % replicas) for number in range(4)]
    check.equal(actual=indices, expected=expected, what="the index of the replica that made each prediction")
