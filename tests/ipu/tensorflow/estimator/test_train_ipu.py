"""IPUEstimator.train: loops of steps on the device, when they end, and what the loss of a loop is."""

from __future__ import annotations

from typing import Any, Dict, List

import numpy as np
import pytest

from ipu_conformance import check

from ..exact import START, check_weight, counts, samples, trained
from .programs import WEIGHT, Estimators, Trained, means

pytestmark = pytest.mark.requires("tensorflow_estimator")

STEPS = 8
each_loop = pytest.mark.parametrize("loop", [1, 2, 8])


def check_losses(left: Trained, loop: int) -> None:
    """The loss of each loop is the mean over its steps, under the global step after it."""
    __tracebackhide__ = True
    expected = dict(zip(range(loop, STEPS + 1, loop), means(trained(1, counts(STEPS)).losses, loop)))
    check.equal(actual=left.losses, expected=expected, what="the loss of each loop by its global step")


@each_loop
def test_a_step_takes_an_element_and_updates(shared: Estimators, loop: int) -> None:
    """So many steps are so many updates, with one element each, however many of them a loop has."""
    left = shared.trained(STEPS, loop)

    check_weight(left.weight, counts(STEPS))
    check.equal(actual=left.step, expected=STEPS, what="the global step")


@each_loop
def test_the_loss_of_a_loop_is_the_mean(shared: Estimators, loop: int) -> None:
    """The host sees one loss for each loop: the mean over its steps."""
    check_losses(shared.trained(STEPS, loop), loop)


def test_train_returns_the_estimator(estimators: Estimators) -> None:
    """Calls can be chained."""
    estimator = estimators.make()

    check.equal(actual=estimator.train(estimators.feed(2), steps=2), expected=estimator, what="what train returns")


def test_the_optimizer_keeps_its_state_in_a_loop_and_between_loops(estimators: Estimators) -> None:
    """The velocity after two loops of two steps is that of four steps."""
    left = estimators.train(STEPS, model_fn=estimators.product(momentum=0.5))

    check_weight(left.weight, counts(STEPS, momentum=0.5))


@pytest.mark.parametrize(("max_steps", "loop", "done"), [(4, 2, 4), (3, 2, 4), (5, 4, 8)])
def test_max_steps_is_rounded_up(estimators: Estimators, max_steps: int, loop: int, done: int) -> None:
    """The loop in which max_steps is reached is completed."""
    estimator = estimators.make(loop=loop)
    estimator.train(estimators.feed(16), max_steps=max_steps)

    estimators.check_left(estimator, done)


@pytest.mark.parametrize("max_steps", [3, 4])
def test_max_steps_counts_all_trainings(estimators: Estimators, max_steps: int) -> None:
    """A training that begins where max_steps is reached does nothing."""
    estimator = estimators.make()
    estimator.train(estimators.feed(8), steps=4)
    estimator.train(estimators.feed(8, skip=4), max_steps=max_steps)

    estimators.check_left(estimator, 4)


@pytest.mark.parametrize("numbers", [{"max_steps": 6}, {"steps": 4}], ids=["max_steps", "steps"])
def test_a_second_training_goes_on_from_the_last_step(estimators: Estimators, numbers: Dict[str, int]) -> None:
    """max_steps counts the steps of all trainings together, steps those of the second one alone."""
    estimator = estimators.after(2)
    estimator.train(estimators.feed(8, skip=2), **numbers)

    estimators.check_left(estimator, 6)


def test_the_model_function_gets_what_it_asks_for(estimators: Estimators) -> None:
    """Features, labels, mode, params and config are given by name; params are a copy."""
    arguments: Dict[str, Any] = {}
    own_params = {"rate": 0.5, "layers": [1, 2]}

    def model_fn(features: Any, labels: Any, mode: Any, params: Any, config: Any) -> Any:
        arguments.update(mode=mode, params=dict(params), loop=config.ipu_run_config.iterations_per_loop)
        loss = estimators.weight() * (features - labels)
        return estimators.spec(mode, loss=loss, train_op=estimators.descent().minimize(loss))

    estimator = estimators.make(model_fn, params=own_params)
    estimator.train(estimators.slices(samples(2) + 2, np.asarray([2, 2], np.float32)), steps=2)

    expected = {"mode": "train", "params": own_params, "loop": 2}
    check.equal(actual=arguments, expected=expected, what="the arguments of the model function")
    check_weight(estimator.get_variable_value(WEIGHT), counts(2))


def test_features_may_have_names(estimators: Estimators) -> None:
    """A dictionary of features comes to the model function as it is."""
    less = np.array([1, 2], np.float32)
    model_fn = estimators.trains(lambda features: estimators.weight() * (features["more"] - features["less"]))
    left = estimators.make(model_fn).train(estimators.slices({"less": less, "more": samples(2) + less}), steps=2)

    check_weight(left.get_variable_value(WEIGHT), counts(2))


def test_the_input_function_gets_what_it_asks_for(estimators: Estimators) -> None:
    """Mode, params and config are given to an input function that names them."""
    arguments: List[Any] = []

    def input_fn(mode: Any, params: Any, config: Any) -> Any:
        arguments.append((mode, params["elements"], config.ipu_run_config.iterations_per_loop))
        return estimators.feed(params["elements"])()

    model_fn = estimators.product()
    estimators.make(lambda features, mode, params: model_fn(features, mode), params={"elements": 2}).train(
        input_fn, steps=2
    )

    check.equal(actual=arguments, expected=[("train", 2, 2)], what="the mode, params and loop that input_fn gets")


def test_a_stock_spec_will_do(estimators: Estimators) -> None:
    """A model function may return the EstimatorSpec of stock TensorFlow."""

    def model_fn(features: Any, mode: Any) -> Any:
        loss = estimators.loss(features)
        return estimators.tf.estimator.EstimatorSpec(mode, loss=loss, train_op=estimators.descent().minimize(loss))

    left = estimators.train(STEPS, model_fn=model_fn)

    check_losses(left, 2)
    check_weight(left.weight, counts(STEPS))


def test_an_operation_may_train(estimators: Estimators) -> None:
    """The train_op is whatever changes variables: it runs once a step."""

    def model_fn(features: Any, mode: Any) -> Any:
        weight = estimators.weight()
        changed = weight.assign_add(estimators.tf.reduce_sum(features))
        return estimators.spec(mode, loss=estimators.tf.reduce_sum(features), train_op=changed)

    left = estimators.train(STEPS, model_fn=model_fn)

    check.identical(actual=left.weight, expected=np.float32(START[0] + samples(STEPS).sum()), what="the weight")


def test_the_loss_may_have_one_element(estimators: Estimators) -> None:
    """A loss of shape [1] counts as a scalar."""
    left = estimators.train(STEPS, model_fn=estimators.trains(lambda features: estimators.weight() * features))

    check_losses(left, 2)
