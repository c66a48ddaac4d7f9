"""IPUEstimator.train: loops of steps on the device, when they end, and what the loss of a loop is."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from ..exact import START, check_weight, counts, samples, trained
from .programs import WEIGHT, Estimators, Trained, means

pytestmark = pytest.mark.requires("tensorflow_estimator")

STEPS = 8


def check_losses(left: Trained, config: RunConfig, loop: int) -> None:
    """The loss of each loop is the mean over its steps, under the global step after it."""
    __tracebackhide__ = True
    expected = dict(zip(range(loop, STEPS + 1, loop), means(trained(1, config).losses, loop)))
    check.equal(actual=left.losses, expected=expected, what="the loss of each loop by its global step")


@pytest.mark.parametrize("loop", [1, 2, 8])
def test_a_step_takes_an_element_and_updates(shared: Estimators, loop: int) -> None:
    """So many steps are so many updates, with one element each, however many of them a loop has.

    The host sees one loss for each loop: the mean over its steps.
    """
    left = shared.trained(STEPS, loop)

    check_weight(left.weight, counts(STEPS))
    check.equal(actual=left.step, expected=STEPS, what="the global step")
    check_losses(left, counts(STEPS), loop)


def of_stock(e: Estimators) -> Any:
    """A model function that returns the EstimatorSpec of stock TensorFlow."""

    def model_fn(features: Any, mode: Any) -> Any:
        loss = e.loss(features)
        return e.tf.estimator.EstimatorSpec(mode, loss=loss, train_op=e.descent().minimize(loss))

    return model_fn


MODELS: Dict[str, Tuple[Callable[[Estimators], Any], RunConfig]] = {
    "momentum": (lambda e: e.product(momentum=0.5), counts(STEPS, momentum=0.5)),
    "stock-spec": (of_stock, counts(STEPS)),
    "loss-of-one-element": (lambda e: e.trains(lambda features: e.weight() * features), counts(STEPS)),
}
"""An optimizer with a state, stock's specification, and a loss of shape [1], which counts as a scalar."""


@pytest.mark.parametrize("name", MODELS)
def test_a_model_trains(estimators: Estimators, name: str) -> None:
    """State lasts in a loop and between loops of two steps, and what else trains does so as a plain loop."""
    model_fn, config = MODELS[name]
    left = estimators.train(STEPS, model_fn=model_fn(estimators))

    check_losses(left, config, 2)
    check_weight(left.weight, config)


def test_train_returns_the_estimator(estimators: Estimators) -> None:
    """Calls can be chained."""
    estimator = estimators.make()

    check.equal(actual=estimator.train(estimators.feed(2), steps=2), expected=estimator, what="what train returns")


@pytest.mark.parametrize(
    ("before", "numbers", "loop", "done"),
    [
        pytest.param(0, {"max_steps": 4}, 2, 4, id="to-the-end-of-a-loop"),
        pytest.param(0, {"max_steps": 3}, 2, 4, id="rounded-up"),
        pytest.param(0, {"max_steps": 5}, 4, 8, id="rounded-up-by-3"),
        pytest.param(4, {"max_steps": 3}, 2, 4, id="passed-before"),
        pytest.param(4, {"max_steps": 4}, 2, 4, id="reached-before"),
        pytest.param(2, {"max_steps": 6}, 2, 6, id="of-both-trainings"),
        pytest.param(2, {"steps": 4}, 2, 6, id="steps-of-the-second"),
    ],
)
def test_trainings_end_with_a_loop(
    estimators: Estimators, before: int, numbers: Dict[str, int], loop: int, done: int
) -> None:
    """The loop that reaches max_steps, counted over all trainings, is completed; steps are those of one training."""
    estimator = estimators.after(before, loop=loop) if before else estimators.make(loop=loop)
    estimator.train(estimators.feed(16, skip=before), **numbers)

    estimators.check_left(estimator, done)


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


def test_an_operation_may_train(estimators: Estimators) -> None:
    """The train_op is whatever changes variables: it runs once a step."""

    def model_fn(features: Any, mode: Any) -> Any:
        weight = estimators.weight()
        changed = weight.assign_add(estimators.tf.reduce_sum(features))
        return estimators.spec(mode, loss=estimators.tf.reduce_sum(features), train_op=changed)

    left = estimators.train(STEPS, model_fn=model_fn)

    check.identical(actual=left.weight, expected=np.float32(START[0] + samples(STEPS).sum()), what="the weight")
