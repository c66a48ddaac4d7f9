"""What an IPUEstimator refuses: model functions, input functions and what they return."""

from __future__ import annotations

from typing import Any, Callable, Dict

import pytest

from ipu_conformance import check

from ..exact import check_weight, counts, samples
from .programs import Estimators

pytestmark = pytest.mark.requires("tensorflow_estimator")


def test_a_model_function_is_needed(ipu: Any, estimators: Estimators) -> None:
    """An estimator is made of a model function."""
    with check.raises(ValueError, match="model_fn", what="an estimator without a model function"):
        ipu.ipu_estimator.IPUEstimator(model_fn=None, config=estimators.config())


def test_a_model_function_takes_known_arguments(estimators: Estimators) -> None:
    """An argument that no estimator can give is refused when the estimator is made."""
    message = r"model_fn .* has following not expected args: \['weather'\]"
    with check.raises(ValueError, match=message, what="a model function that asks for the weather"):
        estimators.make(lambda features, mode, weather: None)


@pytest.mark.parametrize("kind", ["none", "stock", "dictionary"])
def test_the_configuration_is_one_for_ipus(tf: Any, ipu: Any, estimators: Estimators, kind: str) -> None:
    """Without a RunConfig for IPUs there is no estimator for IPUs."""
    config = {"none": None, "stock": tf.estimator.RunConfig(), "dictionary": {"iterations_per_loop": 2}}[kind]

    with check.raises(ValueError, match=r"`config`.*RunConfig", what=f"a config of the kind {kind}"):
        ipu.ipu_estimator.IPUEstimator(model_fn=estimators.product(), config=config)


@pytest.mark.parametrize("mode", ["train", "evaluate"])
def test_an_input_function_returns_a_data_set(estimators: Estimators, mode: str) -> None:
    """Tensors cannot be fed to a loop: an input function that returns them is refused."""
    estimator = estimators.make()

    with check.raises(ValueError, match=r"(?i)dataset", what=f"{mode} with a tensor"):
        getattr(estimator, mode)(lambda: estimators.tf.constant([1.0]), steps=2)


@pytest.mark.parametrize("mode", ["train", "evaluate", "predict"])
def test_the_last_batch_must_be_full(estimators: Estimators, mode: str) -> None:
    """A batch that may be smaller has no shape that could be compiled."""

    def input_fn() -> Any:
        return estimators.slices(samples(4))().batch(2)

    message = r"is not fully defined. If using tf.Dataset.batch, set `drop_remainder=True`"
    with check.raises(ValueError, match=message, what=f"{mode} with a last batch of an open size"):
        estimators.call(estimators.make(), mode, input_fn, 2)


def test_an_element_has_two_parts_at_most(estimators: Estimators) -> None:
    """Elements are features, or features and labels: a data set of three parts is refused."""

    def model_fn(features: Any, labels: Any, mode: Any) -> Any:
        loss = estimators.weight() * (features - labels)
        return estimators.spec(mode, loss=loss, train_op=estimators.descent().minimize(loss))

    with check.raises(ValueError, match="labels", what="training with elements of three parts"):
        estimators.make(model_fn).train(estimators.slices(samples(2), samples(2), samples(2)), steps=2)


def test_labels_need_an_argument(estimators: Estimators) -> None:
    """A model function without labels cannot be fed with some."""
    with check.raises(ValueError, match="labels", what="training with labels that the model function does not take"):
        estimators.make().train(estimators.slices(samples(2), samples(2)), steps=2)


Stepping = Callable[[Any, Any], Any]
STEPPING: Dict[str, Stepping] = {
    "minimize": lambda v1, loss: v1.train.GradientDescentOptimizer(1.0).minimize(loss, v1.train.get_global_step()),
    "assign_add": lambda v1, loss: v1.train.get_global_step().assign_add(1),
    "v1": lambda v1, loss: v1.assign_add(v1.train.get_or_create_global_step(), 2),
}


@pytest.mark.parametrize("way", STEPPING)
def test_the_global_step_is_not_the_model_function_s(estimators: Estimators, way: str) -> None:
    """The estimator counts the steps: a model function that does so as well is refused."""

    def model_fn(features: Any, mode: Any) -> Any:
        loss = estimators.loss(features)
        return estimators.spec(mode, loss=loss, train_op=STEPPING[way](estimators.v1, loss))

    with check.raises(ValueError, match=r"(?i)global.?step", what=f"a model function that counts steps by {way}"):
        estimators.make(model_fn).train(estimators.feed(2), steps=2)


def test_the_global_step_may_be_read(estimators: Estimators) -> None:
    """To look at the global step, for a rate that decays, is not to change it."""

    def model_fn(features: Any, mode: Any) -> Any:
        loss = estimators.loss(features)
        step = estimators.tf.cast(estimators.v1.train.get_global_step(), "float32")
        rate = estimators.v1.train.GradientDescentOptimizer(2.0**-7 + 0.0 * step)
        return estimators.spec(mode, loss=loss, train_op=rate.minimize(loss))

    left = estimators.train(4, model_fn=model_fn)

    check.equal(actual=left.step, expected=4, what="the global step")
    check_weight(left.weight, counts(4))


@pytest.mark.parametrize("returned", [None, {"loss": 1.0}, (1.0, 2.0)], ids=str)
def test_a_model_function_returns_a_spec(estimators: Estimators, returned: Any) -> None:
    """What is neither kind of EstimatorSpec is refused."""
    with check.raises(ValueError, match="EstimatorSpec", what=f"a model function that returns {returned}"):
        estimators.make(lambda features, mode: returned).train(estimators.feed(2), steps=2)


@pytest.mark.parametrize(("mode", "needed"), [("train", "loss"), ("train", "train_op"), ("evaluate", "loss")])
def test_a_spec_has_what_its_mode_needs(estimators: Estimators, mode: str, needed: str) -> None:
    """Training needs a loss and an operation, evaluation needs a loss."""

    def model_fn(features: Any, mode: Any) -> Any:
        loss = estimators.loss(features)
        fields = {"loss": loss, "train_op": estimators.descent().minimize(loss)}
        return estimators.spec(mode, **{name: field for name, field in fields.items() if name != needed})

    with check.raises(ValueError, match=rf"(?i){needed}", what=f"{mode} without {needed}"):
        getattr(estimators.make(model_fn), mode)(estimators.feed(2), steps=2)


def test_predicting_needs_predictions(estimators: Estimators) -> None:
    """A model function that predicts nothing is refused."""
    estimator = estimators.make(lambda features, mode: estimators.spec(mode, loss=estimators.loss(features)))

    with check.raises(ValueError, match=r"(?i)predictions", what="predict without predictions"):
        next(estimator.predict(estimators.feed(2), num_predictions=2))


def test_a_loss_is_a_scalar(estimators: Estimators) -> None:
    """A loss with several elements is refused."""
    model_fn = estimators.trains(lambda features: estimators.weight() * features)

    with check.raises(ValueError, match="Loss must be scalar", what="training with a loss of three elements"):
        estimators.make(model_fn).train(estimators.feed(2, 3), steps=2)


NO_METRICS: Dict[str, Any] = {
    "[1.0, 2.0]": ([1.0, 2.0], TypeError),
    "'mean'": ("mean", TypeError),
    "{'mean': 1.0}": ({"mean": 1.0}, TypeError),
    "one": ((min, 1.0), TypeError),
    "three": ((min, [1.0], [2.0]), ValueError),
}
"""What is no pair of a function and tensors, with the errors of the vendor's ipu_estimator.py."""


@pytest.mark.parametrize("metrics", NO_METRICS)
def test_metrics_on_the_host_are_a_function_and_tensors(estimators: Estimators, metrics: str) -> None:
    """eval_metrics is a pair of a function and its tensors, listed or named."""
    given, error = NO_METRICS[metrics]
    model_fn = estimators.product(also=lambda mode, features, products: {"eval_metrics": given})

    with check.raises(error, match="eval_metrics", what=f"eval_metrics={given!r}"):
        estimators.make(model_fn).evaluate(estimators.feed(2), steps=2)


def test_evaluation_has_metrics(estimators: Estimators) -> None:
    """An evaluation whose spec has metrics neither for the host nor for the device is refused."""
    spec = estimators.ipu.ipu_estimator.IPUEstimatorSpec
    estimator = estimators.make(lambda features, mode: spec(mode, loss=estimators.loss(features)))

    with check.raises(ValueError, match="eval_metric_ops", what="an evaluation without metrics"):
        estimator.evaluate(estimators.feed(2), steps=2)


def test_a_host_call_needs_a_training_operation(estimators: Estimators) -> None:
    """Training needs an operation of the device, also where the host applies the gradients."""

    def model_fn(features: Any, mode: Any) -> Any:
        loss = estimators.loss(features)
        return estimators.spec(mode, loss=loss, host_call=(estimators.tf.identity, [loss]))

    with check.raises(ValueError, match="train_op", what="training with a host_call and without a train_op"):
        estimators.make(model_fn, loop=1).train(estimators.feed(1), steps=1)


def test_an_estimator_that_raised_can_be_used_again(estimators: Estimators) -> None:
    """A refusal leaves nothing behind."""
    estimator = estimators.make()
    with check.raises(ValueError, match="must be a multiple", what="training for a loop and a half"):
        estimator.train(estimators.feed(3), steps=3)
    estimator.train(estimators.feed(2), steps=2)

    estimators.check_left(estimator, 2)


@pytest.mark.parametrize("number", [0, -1])
def test_a_number_of_predictions_is_positive(estimators: Estimators, number: int) -> None:
    """Who asks for a number of predictions gets at least one."""
    with check.raises(ValueError, match="num_predictions", what=f"num_predictions={number}"):
        next(estimators.make().predict(estimators.feed(2), num_predictions=number))


def test_a_model_has_no_more_shards_than_were_asked_for(estimators: Estimators) -> None:
    """A model that uses a second IPU needs num_shards=2."""

    def model_fn(features: Any, mode: Any) -> Any:
        with estimators.ipu.scopes.ipu_shard(1):
            return estimators.spec(mode, loss=estimators.loss(features))

    with check.raises(ValueError, match="num_shards", what="a model on the second IPU of one"):
        estimators.make(model_fn).evaluate(estimators.feed(2), steps=2)


@pytest.mark.emulator
@pytest.mark.parametrize(("elements", "loop"), [(3, 2), (2, 4)])
def test_data_that_end_within_a_loop_are_an_error(estimators: Estimators, elements: int, loop: int) -> None:
    """A device that is left without data would wait forever: the training does not end as if all were well."""
    estimator = estimators.make(loop=loop)

    what = f"training with {elements} elements in loops of {loop}"
    with check.raises(RuntimeError, match="ended in the middle of a loop", what=what):
        estimator.train(estimators.feed(elements), steps=4)
