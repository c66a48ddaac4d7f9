"""IPUEstimator.train: loops of steps on the device, when they end, and what the loss of a loop is."""

from __future__ import annotations

from typing import Any, Dict, List

import numpy as np
import pytest

from ipu_conformance import check

from ..exact import START, check_weight, counts, samples, trained
from .programs import WEIGHT, Estimators, Trained, means

pytestmark = pytest.mark.requires("tensorflow_estimator")

STEPS = 4
LOOPS = (1, 2, 4)


@pytest.fixture(scope="module")
def trainings(shared: Estimators) -> Dict[int, Trained]:
    """What four steps leave, by the number of steps in a loop."""
    return {loop: shared.train(STEPS, loop=loop) for loop in LOOPS}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_step_takes_an_element_and_updates(trainings: Dict[int, Trained], loop: int) -> None:
    """So many steps are so many updates, with one element each, however many of them a loop has."""
    check_weight(trainings[loop].weight, counts(STEPS))


@pytest.mark.parametrize("loop", LOOPS)
def test_the_loss_of_a_loop_is_the_mean(trainings: Dict[int, Trained], loop: int) -> None:
    """The host sees one loss for each loop: the mean over its steps."""
    assert list(trainings[loop].losses.values()) == means(trained(1, counts(STEPS)).losses, loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_the_host_sees_the_step_of_a_loop(trainings: Dict[int, Trained], loop: int) -> None:
    """The global step grows by iterations_per_loop with each loop."""
    assert list(trainings[loop].losses) == list(range(loop, STEPS + 1, loop))
    assert trainings[loop].step == STEPS


def test_train_returns_the_estimator(estimators: Estimators) -> None:
    """Calls can be chained."""
    estimator = estimators.make()

    assert estimator.train(estimators.feed(2), steps=2) is estimator


def test_the_optimizer_keeps_its_state_in_a_loop_and_between_loops(estimators: Estimators) -> None:
    """The velocity after two loops of two steps is that of four steps."""
    left = estimators.train(STEPS, model_fn=estimators.product(momentum=0.5))

    check_weight(left.weight, counts(STEPS, momentum=0.5))


@pytest.mark.parametrize(("steps", "loop"), [(1, 2), (3, 2), (6, 4)])
def test_steps_are_whole_loops(estimators: Estimators, steps: int, loop: int) -> None:
    """A number of steps that is no multiple of iterations_per_loop is refused before anything is built."""
    estimator = estimators.make(loop=loop)

    with pytest.raises(ValueError, match=rf"steps \({steps}\) must be a multiple of iterations_per_loop \({loop}\)"):
        estimator.train(estimators.feed(8), steps=steps)
    assert estimators.checkpoints(estimator) == []


@pytest.mark.parametrize(("max_steps", "loop", "done"), [(4, 2, 4), (3, 2, 4), (5, 4, 8)])
def test_max_steps_is_rounded_up(estimators: Estimators, max_steps: int, loop: int, done: int) -> None:
    """The loop in which max_steps is reached is completed."""
    estimator = estimators.make(loop=loop)
    estimator.train(estimators.feed(16), max_steps=max_steps)
    left = estimators.left(estimator)

    assert left.step == done
    check_weight(left.weight, counts(done))


@pytest.mark.parametrize("max_steps", [3, 4])
def test_max_steps_counts_all_trainings(estimators: Estimators, max_steps: int) -> None:
    """A training that begins where max_steps is reached does nothing."""
    estimator = estimators.make()
    estimator.train(estimators.feed(8), steps=4)
    estimator.train(estimators.feed(8, skip=4), max_steps=max_steps)

    assert estimators.left(estimator).step == 4


@pytest.mark.parametrize("numbers", [{"max_steps": 6}, {"steps": 4}], ids=["max_steps", "steps"])
def test_a_second_training_goes_on_from_the_last_step(estimators: Estimators, numbers: Dict[str, int]) -> None:
    """max_steps counts the steps of all trainings together, steps those of the second one alone."""
    estimator = estimators.make()
    estimator.train(estimators.feed(2), steps=2)
    estimator.train(estimators.feed(8, skip=2), **numbers)
    left = estimators.left(estimator)

    assert left.step == 6
    check_weight(left.weight, counts(6))


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ({"steps": 2, "max_steps": 2}, "both steps and max_steps"),
        ({"steps": 0}, "Must specify steps > 0"),
        ({"steps": -2}, "Must specify steps > 0"),
        ({"max_steps": 0}, "Must specify max_steps > 0"),
    ],
    ids=str,
)
def test_numbers_of_steps_are_sensible(estimators: Estimators, numbers: Dict[str, int], reason: str) -> None:
    """Steps and max_steps exclude one another, and are positive."""
    with pytest.raises(ValueError, match=reason):
        estimators.make().train(estimators.feed(2), **numbers)


def test_the_model_function_gets_what_it_asks_for(estimators: Estimators) -> None:
    """Features, labels, mode, params and config are given by name; params are a copy."""
    arguments: Dict[str, Any] = {}
    own_params = {"rate": 0.5, "layers": [1, 2]}

    def model_fn(features: Any, labels: Any, mode: Any, params: Any, config: Any) -> Any:
        arguments.update(mode=mode, params=dict(params), loop=config.ipu_run_config.iterations_per_loop)
        loss = estimators.weight() * (features - labels)
        return estimators.spec(mode, loss=loss, train_op=estimators.optimizer().minimize(loss))

    estimator = estimators.make(model_fn, params=own_params)
    estimator.train(estimators.slices(samples(2) + 2, np.asarray([2, 2], np.float32)), steps=2)

    assert arguments == {"mode": "train", "params": own_params, "loop": 2}
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

    assert arguments == [("train", 2, 2)]


def test_a_stock_spec_will_do(estimators: Estimators) -> None:
    """A model function may return the EstimatorSpec of stock TensorFlow."""

    def model_fn(features: Any, mode: Any) -> Any:
        loss = estimators.tf.reduce_sum(estimators.weight() * features)
        return estimators.tf.estimator.EstimatorSpec(mode, loss=loss, train_op=estimators.optimizer().minimize(loss))

    left = estimators.train(STEPS, model_fn=model_fn)

    assert list(left.losses.values()) == means(trained(1, counts(STEPS)).losses, 2)
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

    assert list(left.losses.values()) == means(trained(1, counts(STEPS)).losses, 2)
