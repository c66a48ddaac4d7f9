"""Evaluation of Keras models: losses of the data, without a change of weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, NamedTuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.nets import Data, distinct_micro_batches
from ipu_conformance.run import RunConfig, Weights

from ...training import cut, expected
from .nets import MLP, PLAIN, Keras, check_mean_loss, mean_losses, still

CONFIGS = {
    "plain": replace(PLAIN, device_iterations=4),
    "replicated": replace(PLAIN, device_iterations=3, replicas=2),
    "pipelined": cut("mlp", replace(PLAIN, device_iterations=1, gradient_accumulation=4), 2),
    "pipelined-replicated": cut("mlp", replace(PLAIN, device_iterations=1, gradient_accumulation=4, replicas=2), 2),
}
each_config = pytest.mark.parametrize("name", CONFIGS)


class Evaluated(NamedTuple):
    """What evaluate returns, and the weights after it."""

    metrics: Dict[str, float]
    weights: Weights


def evaluated(keras: Keras, config: RunConfig, data: Any = None, **settings: Any) -> Evaluated:
    """An evaluation of the initial weights, with an accuracy; those of a configuration's own data are shared."""

    def run() -> Evaluated:
        with keras.ready(config, metrics=["accuracy"], **settings) as model:
            metrics = model.evaluate(keras.dataset(config, data), verbose=0, return_dict=True)
        return Evaluated(metrics, keras.known(model).weights())

    key = ("evaluate", config, tuple(settings.items()))
    result: Evaluated = keras.once(key, run) if data is None else run()
    return result


@pytest.mark.ipus(4)
@each_config
def test_a_loss_is_the_mean_over_the_steps(keras: Keras, name: str) -> None:
    """evaluate returns the mean loss of the last replica's steps."""
    means, bounds = mean_losses(still(CONFIGS[name]))
    metrics = evaluated(keras, CONFIGS[name]).metrics

    check_mean_loss(metrics["loss"], means[-1, -1], bounds[-1, -1], "the loss of the last replica")


@pytest.mark.ipus(4)
@each_config
def test_evaluation_changes_no_weight(keras: Keras, name: str) -> None:
    """Weights have the same bits after evaluate."""
    for key, weight in evaluated(keras, CONFIGS[name]).weights.items():
        initial = MLP.initial_weights(2021)[key].astype(np.float32).astype(np.float64)
        check.identical(actual=weight, expected=initial, what=f"{key} after evaluate")


@pytest.mark.ipus(4)
@each_config
def test_metrics_count_the_samples(keras: Keras, name: str) -> None:
    """An accuracy is that of the samples which the last replica saw."""
    config = CONFIGS[name]
    shape = (-1, config.replicas, config.micro_batch)
    logits = np.reshape(expected("mlp", still(config)).outputs[0], (*shape, MLP.classes))
    labels = distinct_micro_batches(MLP, config).labels.reshape(shape)
    share = float((logits.argmax(-1) == labels)[:, -1].mean())
    accuracy = evaluated(keras, config).metrics["accuracy"]

    # A share of so few samples is one rounding of float32 away from the exact one.
    near = abs(accuracy - share) <= np.finfo(np.float32).eps
    check.holds(near, f"The accuracy is {accuracy} where the last replica's samples give {share}.")


@pytest.mark.parametrize("execution", [1, 2])
def test_the_length_of_an_execution_changes_nothing(keras: Keras, execution: int) -> None:
    """Any steps_per_execution that divides the steps gives the same loss."""
    config = CONFIGS["plain"]
    short = evaluated(keras, config, steps_per_execution=execution).metrics

    check.equal(actual=short, expected=evaluated(keras, config).metrics, what=f"a result in executions of {execution}")


def test_an_execution_divides_the_steps(keras: Keras) -> None:
    """steps_per_execution that does not divide the number of batches is an error."""
    message = "must be a divisor of the number of batches"
    with check.raises(ValueError, match=message, what="evaluate with 3 of 4 steps in an execution"):
        evaluated(keras, CONFIGS["plain"], steps_per_execution=3)


@pytest.mark.ipus(2)
def test_batches_that_fill_no_step_are_dropped(keras: Keras, said: Any) -> None:
    """The steps of a replica are the batches over the replicas, with a warning for the rest."""
    config = CONFIGS["replicated"]
    whole = distinct_micro_batches(MLP, config)
    rest = distinct_micro_batches(MLP, replace(PLAIN, device_iterations=1), seed=3)
    data = Data(np.concatenate([whole.inputs, rest.inputs], 1), np.concatenate([whole.labels, rest.labels], 1))
    longer = evaluated(keras, config, data).metrics

    check.contains(actual=said(), expected="replicas", what="TensorFlow's log")
    check.equal(actual=longer, expected=evaluated(keras, config).metrics, what="the result with a batch too many")


def test_steps_bound_an_evaluation(keras: Keras) -> None:
    """steps is the number of batches that are used."""
    means, bounds = mean_losses(still(CONFIGS["plain"]))
    with keras.ready(CONFIGS["plain"], steps_per_execution=2) as model:
        loss = model.evaluate(keras.dataset(CONFIGS["plain"]).repeat(), steps=2, verbose=0)

    check_mean_loss(loss, means[1, -1], bounds[1, -1], "the loss of two of four steps")


@pytest.mark.ipus(4)
def test_replicas_evaluate_with_the_statistics_of_the_first(keras: Keras, tf: Any) -> None:
    """Another program begins with replica 0's values on every replica, running statistics included."""
    replicas = 4
    x = np.asarray([[1.0], [3.0], [8.0], [24.0], [-4.0], [12.0], [-40.0], [8.0]], np.float32)
    ones, zeros = np.ones((2 * replicas, 1)), np.zeros((2 * replicas, 1))
    with keras.scope(replace(PLAIN, replicas=replicas)):
        norm = tf.keras.layers.BatchNormalization(momentum=0.5, scale=False, center=False, epsilon=1.0)
        model = tf.keras.Sequential([norm])
        model.compile(tf.keras.optimizers.SGD(0.125), "mse")
        model.set_replication_options("LIST")
        model.fit(x, zeros, batch_size=2, shuffle=False, verbose=0)
        losses = np.asarray(model.evaluate(ones, zeros, batch_size=2, verbose=0))

    check.equal(actual=float(norm.moving_mean[0]), expected=1.0, what="the running mean of replica 0")
    expected = np.full(replicas, losses[0])
    check.identical(actual=losses, expected=expected, what="the loss by replica", because="it is that of replica 0")
