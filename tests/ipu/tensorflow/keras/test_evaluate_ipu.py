"""Evaluation of Keras models: losses of the data, without a change of weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.nets import Data, distinct_micro_batches
from ipu_conformance.oracle.tolerance.runs import ArrayTolerance
from ipu_conformance.run import RunConfig

from ...training import cut, expected, tolerance
from .nets import MLP, PLAIN, Keras

CONFIGS = {
    "plain": replace(PLAIN, device_iterations=4),
    "replicated": replace(PLAIN, device_iterations=2, replicas=2),
    "pipelined": cut("mlp", replace(PLAIN, device_iterations=1, gradient_accumulation=4), 2),
    "pipelined-replicated": cut("mlp", replace(PLAIN, device_iterations=1, gradient_accumulation=4, replicas=2), 2),
}


def evaluated(keras: Keras, config: RunConfig, data: Any = None, **settings: Any) -> Any:
    """The model and what evaluate returns for it."""
    with keras.ready(config, **settings) as model:
        return model, model.evaluate(keras.dataset(config, data), verbose=0, return_dict=True)


def losses(config: RunConfig) -> Any:
    """Every micro-batch's loss from the initial weights, in the order of the feed, with the tolerances."""
    still = replace(config, learning_rate=type(config.learning_rate)("constant", (("base", 0.0),)), stages=())
    expected_losses, allowed = expected("mlp", still).losses[0], tolerance("mlp", still).losses[0].allowed
    return np.reshape(expected_losses, (-1, config.replicas)), np.reshape(allowed, (-1, config.replicas))


@pytest.mark.ipus(4)
@pytest.mark.parametrize("name", CONFIGS)
def test_a_loss_is_the_mean_over_the_steps(keras: Keras, name: str) -> None:
    """evaluate returns the mean loss of the last replica's steps."""
    config = CONFIGS[name]
    expected_losses, allowed = losses(config)
    bound = (
        allowed[:, -1].mean() + (len(expected_losses) + 1) * np.finfo(np.float32).eps * np.abs(expected_losses).max()
    )
    _, result = evaluated(keras, config)

    check.close(
        actual=np.float64(result["loss"]),
        expected=expected_losses[:, -1].mean(),
        tolerance=ArrayTolerance(np.asarray(bound), float(bound), "the mean of the losses' tolerances"),
        what="the loss",
    )


@pytest.mark.ipus(4)
@pytest.mark.parametrize("name", CONFIGS)
def test_evaluation_changes_no_weight(keras: Keras, name: str) -> None:
    """Weights have the same bits after evaluate."""
    model, _ = evaluated(keras, CONFIGS[name])

    for key, weight in keras.weights(model).items():
        check.identical(actual=weight, expected=MLP.initial_weights(2021)[key].astype(np.float32), what=key)


@pytest.mark.ipus(4)
@pytest.mark.parametrize("name", CONFIGS)
def test_metrics_count_the_samples(keras: Keras, name: str) -> None:
    """An accuracy is that of the samples which the last replica saw."""
    config = CONFIGS[name]
    data = distinct_micro_batches(MLP, config)
    still = replace(config, learning_rate=type(config.learning_rate)("constant", (("base", 0.0),)), stages=())
    logits = np.reshape(expected("mlp", still).outputs[0], (-1, config.replicas, config.micro_batch, MLP.classes))
    labels = data.labels.reshape(-1, config.replicas, config.micro_batch)
    right = (logits.argmax(-1) == labels)[:, -1]
    _, result = evaluated(keras, config, metrics=["accuracy"])

    # A share of so few samples is one rounding of float32 away from the exact one.
    assert abs(result["accuracy"] - right.mean()) <= np.finfo(np.float32).eps


@pytest.mark.parametrize("execution", [1, 2, 4])
def test_the_length_of_an_execution_changes_nothing(keras: Keras, execution: int) -> None:
    """Any steps_per_execution that divides the steps gives the same loss."""
    config = CONFIGS["plain"]
    _, one = evaluated(keras, config, steps_per_execution=execution)
    _, other = evaluated(keras, config)

    assert one == other


def test_an_execution_divides_the_steps(keras: Keras) -> None:
    """steps_per_execution that does not divide the number of batches is an error."""
    with pytest.raises(ValueError, match="must be a divisor of the number of batches"):
        evaluated(keras, CONFIGS["plain"], steps_per_execution=3)


@pytest.mark.ipus(2)
def test_batches_that_fill_no_step_are_dropped(keras: Keras, said: Any) -> None:
    """The steps of a replica are the batches over the replicas, with a warning for the rest."""
    config = CONFIGS["replicated"]
    whole = distinct_micro_batches(MLP, config)
    rest = distinct_micro_batches(MLP, replace(PLAIN, device_iterations=1), seed=3)
    data = Data(np.concatenate([whole.inputs, rest.inputs], 1), np.concatenate([whole.labels, rest.labels], 1))
    _, longer = evaluated(keras, config, data)
    warned = said()
    _, exact = evaluated(keras, config)

    assert "not divisible" in warned
    assert longer == exact


def test_steps_bound_an_evaluation(keras: Keras) -> None:
    """steps is the number of batches that are used."""
    config = CONFIGS["plain"]
    expected_losses, _ = losses(config)
    with keras.ready(config, steps_per_execution=2) as model:
        half = model.evaluate(keras.dataset(config).repeat(), steps=2, verbose=0)
        whole = model.evaluate(keras.dataset(config), verbose=0)

    assert abs(half - expected_losses[:2].mean()) < abs(whole - expected_losses[:2].mean())


@pytest.mark.ipus(2)
def test_replicas_evaluate_with_the_statistics_of_the_first(keras: Keras, tf: Any) -> None:
    """Another program begins with replica 0's values on every replica, running statistics included."""
    config = replace(PLAIN, device_iterations=1, replicas=2)
    data = tf.data.Dataset.from_tensor_slices(
        (np.asarray([[1.0], [3.0], [8.0], [24.0]], np.float32), np.zeros((4, 1), np.float32))
    ).batch(2)
    with keras.scope(config):
        norm = tf.keras.layers.BatchNormalization(momentum=0.5, scale=False, center=False, epsilon=1.0)
        model = tf.keras.Sequential([norm])
        model.compile(tf.keras.optimizers.SGD(0.0), "mse")
        model.set_replication_options("LIST")
        same = tf.data.Dataset.from_tensor_slices((np.ones((4, 1), np.float32), np.zeros((4, 1), np.float32)))
        model.fit(data.map(lambda x, y: (tf.ensure_shape(x, (2, 1)), tf.ensure_shape(y, (2, 1)))), verbose=0)
        first, second = model.evaluate(same.batch(2, drop_remainder=True), verbose=0)

    assert float(norm.moving_mean[0]) == 1.0
    assert first == second
