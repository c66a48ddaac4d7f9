"""Replicas, shards and accumulation in an IPUEstimator: who takes what, and how gradients meet."""

from __future__ import annotations

from typing import Any, Dict

import numpy as np
import pytest

from ipu_conformance import check

from ..exact import START, check_weight, counts, samples, trained
from .programs import WEIGHT, Estimators, Trained, means

pytestmark = [pytest.mark.ipus(2), pytest.mark.requires("tensorflow_estimator")]

STEPS = 4
FOUR = pytest.mark.ipus(4)
FACTORS = [
    pytest.param(replicas, loop, marks=pytest.mark.ipus(replicas)) for replicas, loop in ((2, 1), (2, 2), (4, 2))
]


@pytest.mark.parametrize(("replicas", "loop"), FACTORS)
def test_replicas_take_neighbours_and_the_mean(shared: Estimators, replicas: int, loop: int) -> None:
    """In step i replica r trains with element i·R + r, and all apply the mean of their gradients in one step."""
    left = shared.trained(STEPS, loop, replicas)

    check_weight(left.weight, counts(STEPS, replicas=replicas))
    check.equal(actual=left.step, expected=STEPS, what=f"the global step of {replicas} replicas")


def check_losses(left: Trained, expected: np.ndarray, loop: int) -> None:
    """The loss of each loop is the mean over its steps and replicas."""
    __tracebackhide__ = True
    check.equal(actual=list(left.losses.values()), expected=means(expected, loop), what="the loss of each loop")


@pytest.mark.parametrize(("replicas", "loop"), FACTORS)
def test_the_loss_is_the_mean_over_replicas_too(shared: Estimators, replicas: int, loop: int) -> None:
    """The loss of a loop is the mean over its steps and over replicas."""
    check_losses(shared.trained(STEPS, loop, replicas), trained(1, counts(STEPS, replicas=replicas)).losses, loop)


def test_replicas_must_meet(estimators: Estimators) -> None:
    """Replicas that train without any operation across them would go apart: they are refused."""
    estimator = estimators.make(estimators.product(lambda optimizer: optimizer), replicas=2)

    with check.raises(ValueError, match=r"(?i)replica", what="training of two replicas that never meet"):
        estimator.train(estimators.feed(8), steps=4)
    check.equal(actual=estimators.checkpoints(estimator), expected=[], what="the steps of the checkpoints")


def test_any_operation_across_replicas_will_do(estimators: Estimators) -> None:
    """A model function may reduce gradients by itself."""
    ipu = estimators.ipu

    def model_fn(features: Any, mode: Any) -> Any:
        loss = estimators.loss(features)
        optimizer = estimators.descent()
        pairs = [
            (ipu.cross_replica_ops.cross_replica_sum(gradient) / 2, variable)
            for gradient, variable in optimizer.compute_gradients(loss)
        ]
        return estimators.spec(mode, loss=loss, train_op=optimizer.apply_gradients(pairs))

    left = estimators.train(STEPS, model_fn=model_fn, replicas=2)

    check_weight(left.weight, counts(STEPS, replicas=2))


def test_one_replica_need_not_meet(estimators: Estimators) -> None:
    """One replica trains with any optimizer, also with one that takes means over replicas."""
    left = estimators.train(STEPS, model_fn=estimators.product(estimators.ipu.optimizers.CrossReplicaOptimizer))

    check_weight(left.weight, counts(STEPS))


def test_replicas_keep_the_state_of_the_optimizer(estimators: Estimators) -> None:
    """Momentum works on the means, from loop to loop."""
    left = estimators.train(STEPS, model_fn=estimators.product(replicas=2, momentum=0.5), replicas=2)

    check_weight(left.weight, counts(STEPS, replicas=2, momentum=0.5))


@pytest.mark.parametrize("replicas", [pytest.param(number, marks=pytest.mark.ipus(number)) for number in (1, 2, 4)])
def test_evaluation_sees_the_elements_of_all_replicas(estimators: Estimators, replicas: int) -> None:
    """Loss and metrics are those of steps × R elements; nothing has to meet."""

    def also(mode: Any, features: Any, products: Any) -> Dict[str, Any]:
        return {"eval_metrics": (lambda values: {"mean": estimators.v1.metrics.mean(values)}, [3 * products])}

    estimator = estimators.make(estimators.product(replicas=replicas, also=also), replicas=replicas)
    metrics = estimator.evaluate(estimators.feed(4 * replicas, 2), steps=4)

    mean = START[0] * samples(4 * replicas * 2).astype(np.float64).mean()
    # The loss of a batch of two is the sum of its products.
    expected = {"mean": 3 * mean, "loss": 2 * mean, "global_step": 4}
    check.equal(actual=metrics, expected=expected, what=f"the evaluation on {replicas} replicas")


def test_metrics_of_the_device_are_means_over_replicas(estimators: Estimators) -> None:
    """A metric that each replica keeps on the device is averaged over replicas for the host."""

    def also(mode: Any, features: Any, products: Any) -> Dict[str, Any]:
        return {"eval_metric_ops": {"mean": estimators.v1.metrics.mean(products)}}

    estimator = estimators.make(estimators.product(replicas=2, also=also), replicas=2)
    metrics = estimator.evaluate(estimators.feed(8), steps=4)

    expected = START[0] * samples(8).astype(np.float64).mean()
    check.equal(actual=metrics["mean"], expected=expected, what="the metric, averaged over replicas,")


@pytest.mark.parametrize("replicas", [2, pytest.param(4, marks=FOUR)])
def test_predictions_of_replicas_come_in_the_order_of_the_input(estimators: Estimators, replicas: int) -> None:
    """Predictions follow the elements, whichever replica made them."""
    estimator = estimators.make(replicas=replicas)
    predictions = list(estimator.predict(estimators.feed(4 * replicas, 2), num_predictions=8 * replicas))

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


@pytest.mark.ipus(1)
@pytest.mark.parametrize(("count", "method"), [(2, "SUM"), (4, "SUM"), (4, "MEAN")])
def test_gradients_are_accumulated(estimators: Estimators, count: int, method: str) -> None:
    """After every so many steps there is one update, with the sum or the mean of their gradients."""
    methods = estimators.ipu.gradient_accumulation.GradientAccumulationReductionMethod
    wrapped = estimators.ipu.optimizers.GradientAccumulationOptimizerV2
    model_fn = estimators.product(lambda opt: wrapped(opt, count, reduction_method=methods[method]))
    left = estimators.train(8, model_fn=model_fn, loop=4)
    expected = trained(1, counts(8 // count, count, accumulation_reduction=method.lower()))

    check.identical(actual=left.weight, expected=expected.weights[0], what="the weight")
    check_losses(left, expected.losses, 4)
    check.equal(actual=left.step, expected=8, what="the global step")


@pytest.mark.ipus(1)
def test_the_older_optimizer_accumulates_too(estimators: Estimators) -> None:
    """GradientAccumulationOptimizer sums up, with momentum as well."""
    wrapped = estimators.ipu.optimizers.GradientAccumulationOptimizer
    left = estimators.train(8, model_fn=estimators.product(lambda opt: wrapped(opt, 2), momentum=0.5), loop=4)

    check_weight(left.weight, counts(4, 2, momentum=0.5))


@pytest.mark.parametrize(
    "name",
    [
        "CrossReplicaGradientAccumulationOptimizerV2",
        pytest.param("CrossReplicaGradientAccumulationOptimizer"),
    ],
)
def test_replicas_accumulate_before_they_meet(estimators: Estimators, name: str) -> None:
    """Each replica accumulates alone, then all apply the mean over replicas."""
    wrapped = getattr(estimators.ipu.optimizers, name)
    left = estimators.train(8, model_fn=estimators.product(lambda opt: wrapped(opt, 2)), loop=4, replicas=2)
    expected = trained(1, counts(4, 2, 2))

    check.identical(actual=left.weight, expected=expected.weights[0], what="the weight")
    check_losses(left, expected.losses, 4)


def test_accumulation_alone_does_not_let_replicas_meet(estimators: Estimators) -> None:
    """An optimizer that only accumulates leaves replicas apart: it is refused."""
    wrapped = estimators.ipu.optimizers.GradientAccumulationOptimizerV2
    estimator = estimators.make(estimators.product(lambda opt: wrapped(opt, 2)), replicas=2)

    with check.raises(ValueError, match=r"(?i)replica", what="training of two replicas that only accumulate"):
        estimator.train(estimators.feed(8), steps=4)


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

    def model_fn(features: Any, mode: Any) -> Any:
        v1, scopes = estimators.v1, estimators.ipu.scopes
        value = estimators.tf.reduce_sum(features)
        for shard in (0, 1):
            with scopes.ipu_shard(shard):
                initializer = v1.constant_initializer(START[shard])
                value = value * v1.get_variable(f"w{shard}", [], initializer=initializer, use_resource=True)
        fields: Dict[str, Any] = {"loss": value}
        if mode == estimators.modes.TRAIN:
            optimizers, optimizer = estimators.ipu.optimizers, estimators.descent()
            if replicas > 1:
                optimizer = optimizers.CrossReplicaOptimizer(optimizer)
            fields["train_op"] = optimizers.ShardedOptimizer(optimizer).minimize(value)
        return estimators.spec(mode, **fields)

    return model_fn


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
    predictions = list(estimator.predict(estimators.feed(4 * replicas), num_predictions=4))

    indices = [float(each) for each in predictions]
    expected = [float(number % replicas) for number in range(4)]
    check.equal(actual=indices, expected=expected, what="the index of the replica that made each prediction")
