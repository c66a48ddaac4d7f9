"""Evaluation and prediction with Keras models: losses and outputs of the data, without a change of weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, NamedTuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.nets import Data, distinct_micro_batches
from ipu_conformance.run import RunConfig, Weights

from ...training import cut, expected
from .nets import MLP, PLAIN, Keras, check_losses, check_outputs, still

CONFIGS = {
    "plain": replace(PLAIN, device_iterations=4),
    "replicated": replace(PLAIN, device_iterations=4, replicas=2),
    "replicated-4": replace(PLAIN, device_iterations=1, replicas=4),
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
    config = CONFIGS[name]

    check_losses(evaluated(keras, config).metrics["loss"], still(config), "the loss of the last replica")


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


@pytest.mark.ipus(2)
@pytest.mark.parametrize("execution", [1, 2])
def test_the_length_of_an_execution_changes_nothing(keras: Keras, execution: int) -> None:
    """Any steps_per_execution that divides the steps gives the same losses and predictions."""
    plain, replicated = CONFIGS["plain"], CONFIGS["replicated"]
    losses, what = evaluated(keras, plain, steps_per_execution=execution).metrics, f"in executions of {execution}"
    predictions = keras.predict(replicated, steps_per_execution=execution)

    check.equal(actual=losses, expected=evaluated(keras, plain).metrics, what=f"the losses {what}")
    check.identical(actual=predictions, expected=keras.predict(replicated), what=f"the predictions {what}")


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
    with keras.ready(CONFIGS["plain"], steps_per_execution=2) as model:
        loss = model.evaluate(keras.dataset(CONFIGS["plain"]).repeat(), steps=2, verbose=0)

    check_losses(loss, still(CONFIGS["plain"]), "the loss of two of four steps", (1, -1))


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


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("name", "kind"), [
    *((name, "functional") for name in CONFIGS), ("plain", "sequential"), ("plain", "subclassed"),
])  # fmt: skip
def test_predictions_are_those_specified(keras: Keras, name: str, kind: str) -> None:
    """predict returns the net's values for all samples, in the order of the data."""
    check_outputs(keras.predict(CONFIGS[name], kind), CONFIGS[name])


@pytest.mark.ipus(4)
@each_config
def test_a_model_may_have_several_outputs(keras: Keras, tf: Any, name: str) -> None:
    """Every output comes back under its name with all samples."""
    config = CONFIGS[name]
    x = np.arange(8 * config.replicas, dtype=np.float32)[: 4 * config.replicas if config.stages else 4][:, None]
    cut_between = (0, 1) if config.stages else ()
    with keras.scope(config):
        inputs = tf.keras.Input((1,))
        with keras.stage_of(cut_between, 0):
            one = tf.keras.layers.Lambda(lambda value: value + 1)(inputs)
        with keras.stage_of(cut_between, 1):
            two = tf.keras.layers.Lambda(lambda value: value * 2)(one)
        model = tf.keras.Model(inputs, {"one": one, "two": two})
        model.compile(steps_per_execution=len(x) // config.replicas)
        if config.stages:
            model.set_pipelining_options(4)
        predicted = model.predict(x, batch_size=1, verbose=0)

    check.equal(actual=sorted(predicted), expected=["one", "two"], what="the names of the outputs")
    check.identical(actual=predicted["one"], expected=x + 1, what="output one of all samples")
    check.identical(actual=predicted["two"], expected=2 * x + 2, what="output two of all samples")


@pytest.mark.parametrize("form", ["arrays", "dataset", "dataset of tuples"])
def test_inputs_may_come_alone(keras: Keras, tf: Any, form: str) -> None:
    """predict takes arrays, data sets of inputs, and data sets of tuples whose first element is used."""
    x = np.arange(6, dtype=np.float32)[:, None]
    with keras.scope(PLAIN):
        model = tf.keras.Sequential([tf.keras.layers.Lambda(lambda value: -value)])
        model.compile(steps_per_execution=3)
        data: Any = x
        if form != "arrays":
            data = tf.data.Dataset.from_tensor_slices(x if form == "dataset" else (x, x + 100))
            data = data.batch(2, drop_remainder=True)
        predicted = model.predict(data, batch_size=2 if form == "arrays" else None, verbose=0)

    check.identical(actual=predicted, expected=-x, what="the predictions")
