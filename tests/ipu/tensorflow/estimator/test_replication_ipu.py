"""Replicas, shards and accumulation in an IPUEstimator: who takes what, and how gradients meet."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from ..exact import START, check_weight, counts, samples, trained
from .programs import WEIGHT, Estimators, Trained, means

pytestmark = [pytest.mark.ipus(2), pytest.mark.requires("tensorflow_estimator")]

STEPS = 4
FOUR = (pytest.mark.ipus(4), pytest.mark.level("qualify"))
FACTORS = [
    pytest.param(replicas, loop, marks=pytest.mark.ipus(replicas)) for replicas, loop in ((2, 1), (2, 2), (4, 2))
]


@pytest.fixture(scope="module")
def trainings(shared: Estimators) -> Trainings:
    """Trainings on replicas, each run once."""
    return Trainings(shared)


class Trainings:
    """What trainings on replicas leave, by the numbers of replicas and of steps in a loop."""

    def __init__(self, shared: Estimators) -> None:
        self._shared = shared
        self._known: Dict[Tuple[int, int], Trained] = {}

    def __call__(self, replicas: int, loop: int) -> Trained:
        if (replicas, loop) not in self._known:
            self._known[replicas, loop] = self._shared.train(STEPS, replicas=replicas, loop=loop)
        return self._known[replicas, loop]


@pytest.mark.parametrize(("replicas", "loop"), FACTORS)
def test_replicas_take_neighbours_and_the_mean(trainings: Trainings, replicas: int, loop: int) -> None:
    """In step i replica r trains with element i·R + r, and all apply the mean of their gradients."""
    check_weight(trainings(replicas, loop).weight, counts(STEPS, replicas=replicas))


@pytest.mark.parametrize(("replicas", "loop"), FACTORS)
def test_the_loss_is_the_mean_over_replicas_too(trainings: Trainings, replicas: int, loop: int) -> None:
    """The loss of a loop is the mean over its steps and over replicas."""
    losses = trained(1, counts(STEPS, replicas=replicas)).losses

    assert list(trainings(replicas, loop).losses.values()) == means(losses, loop)


@pytest.mark.parametrize(("replicas", "loop"), FACTORS)
def test_the_global_step_does_not_count_replicas(trainings: Trainings, replicas: int, loop: int) -> None:
    """A step of all replicas is one step."""
    assert trainings(replicas, loop).step == STEPS


def test_replicas_must_meet(estimators: Estimators) -> None:
    """Replicas that train without any operation across them would go apart: they are refused."""
    estimator = estimators.make(estimators.product(lambda optimizer: optimizer), replicas=2)

    with pytest.raises(ValueError, match=r"(?i)replica"):
        estimator.train(estimators.feed(8), steps=4)
    assert estimators.checkpoints(estimator) == []


def test_any_operation_across_replicas_will_do(estimators: Estimators) -> None:
    """A model function may reduce gradients by itself."""
    ipu = estimators.ipu

    def model_fn(features: Any, mode: Any) -> Any:
        loss = estimators.tf.reduce_sum(estimators.weight() * features)
        optimizer = estimators.optimizer()
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


@pytest.mark.parametrize("replicas", [2, pytest.param(4, marks=FOUR)])
def test_evaluation_sees_the_elements_of_all_replicas(estimators: Estimators, replicas: int) -> None:
    """Loss and metrics are those of steps × R elements; nothing has to meet."""

    def also(mode: Any, features: Any, products: Any) -> Dict[str, Any]:
        return {"eval_metrics": (lambda values: {"mean": estimators.v1.metrics.mean(values)}, [products])}

    estimator = estimators.make(estimators.product(replicas=replicas, also=also), replicas=replicas)
    metrics = estimator.evaluate(estimators.feed(4 * replicas, 2), steps=4)

    fed = START[0] * samples(4 * replicas * 2)
    assert metrics["mean"] == fed.astype(np.float64).mean()
    assert metrics["loss"] == fed.reshape(-1, 2).sum(axis=1).astype(np.float64).mean()


def test_metrics_of_the_device_are_means_over_replicas(estimators: Estimators) -> None:
    """A metric that each replica keeps on the device is averaged over replicas for the host."""

    def also(mode: Any, features: Any, products: Any) -> Dict[str, Any]:
        return {"eval_metric_ops": {"mean": estimators.v1.metrics.mean(products)}}

    estimator = estimators.make(estimators.product(replicas=2, also=also), replicas=2)
    metrics = estimator.evaluate(estimators.feed(8), steps=4)

    assert metrics["mean"] == START[0] * samples(8).astype(np.float64).mean()


@pytest.mark.parametrize("replicas", [2, pytest.param(4, marks=FOUR)])
def test_predictions_of_replicas_come_in_the_order_of_the_input(estimators: Estimators, replicas: int) -> None:
    """Predictions follow the elements, whichever replica made them."""
    estimator = estimators.make(replicas=replicas)
    predictions = list(estimator.predict(estimators.feed(4 * replicas, 2), num_predictions=8 * replicas))

    actual = np.array([each["product"] for each in predictions])
    check.identical(actual=actual, expected=START[0] * samples(8 * replicas), what="the products")


def test_replicas_leave_one_copy_of_their_variables(estimators: Estimators) -> None:
    """A checkpoint has the variables of one replica."""
    estimator = estimators.make(estimators.product(replicas=2, momentum=0.5), replicas=2)
    estimator.train(estimators.feed(4), steps=2)

    assert sorted(estimator.get_variable_names()) == ["global_step", WEIGHT, f"{WEIGHT}/Momentum"]


def test_replicas_go_on_from_a_checkpoint(estimators: Estimators) -> None:
    """A second training restores every replica."""
    estimator = estimators.make(estimators.product(replicas=2, momentum=0.5), replicas=2)
    estimator.train(estimators.feed(4), steps=2)
    estimator.train(estimators.feed(4, skip=4), steps=2)

    check_weight(estimator.get_variable_value(WEIGHT), counts(4, replicas=2, momentum=0.5))


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
    assert list(left.losses.values()) == means(expected.losses, 4)
    assert left.step == 8


@pytest.mark.level("qualify")
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
        pytest.param("CrossReplicaGradientAccumulationOptimizer", marks=pytest.mark.level("qualify")),
    ],
)
def test_replicas_accumulate_before_they_meet(estimators: Estimators, name: str) -> None:
    """Each replica accumulates alone, then all apply the mean over replicas."""
    wrapped = getattr(estimators.ipu.optimizers, name)
    left = estimators.train(8, model_fn=estimators.product(lambda opt: wrapped(opt, 2)), loop=4, replicas=2)
    expected = trained(1, counts(4, 2, 2))

    check.identical(actual=left.weight, expected=expected.weights[0], what="the weight")
    assert list(left.losses.values()) == means(expected.losses, 4)


def test_accumulation_alone_does_not_let_replicas_meet(estimators: Estimators) -> None:
    """An optimizer that only accumulates leaves replicas apart: it is refused."""
    wrapped = estimators.ipu.optimizers.GradientAccumulationOptimizerV2
    estimator = estimators.make(estimators.product(lambda opt: wrapped(opt, 2)), replicas=2)

    with pytest.raises(ValueError, match=r"(?i)replica"):
        estimator.train(estimators.feed(8), steps=4)


@pytest.mark.ipus(1)
def test_a_loop_holds_whole_accumulations(estimators: Estimators) -> None:
    """A loop that the mini-batches do not divide fails when it runs."""
    wrapped = estimators.ipu.optimizers.GradientAccumulationOptimizerV2
    estimator = estimators.make(estimators.product(lambda opt: wrapped(opt, 3)), loop=4)

    with pytest.raises(estimators.tf.errors.FailedPreconditionError):
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
            optimizers, optimizer = estimators.ipu.optimizers, estimators.optimizer()
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

    check.identical(actual=np.asarray(weights, np.float32), expected=expected.weights, what="the weights")
    assert list(estimators.left(estimator).losses.values()) == means(expected.losses, 2)


def test_shards_take_no_elements(estimators: Estimators) -> None:
    """A sharded model takes one element a step, however many IPUs it has."""
    estimator = estimators.make(sharded(estimators, 1), shards=2)
    metrics = estimator.evaluate(estimators.feed(2), steps=2)

    assert metrics["loss"] == START[0] * START[1] * samples(2).mean()


@pytest.mark.parametrize("replicas", [1, 2])
def test_replicas_know_their_number(estimators: Estimators, replicas: int) -> None:
    """The model is built so that each replica has its index; there are as many as were asked for."""

    def index(features: Any) -> Any:
        return estimators.tf.cast(estimators.ipu.replication_ops.replication_index(), "float32") + 0 * features

    estimator = estimators.make(estimators.predicts(index), replicas=replicas)
    predictions = list(estimator.predict(estimators.feed(4 * replicas), num_predictions=4))

    assert [float(each) for each in predictions] == [float(number % replicas) for number in range(4)]
