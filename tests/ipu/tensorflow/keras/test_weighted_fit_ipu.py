"""What a fit takes beside its data: weights of samples, classes and outputs, rates of a callback, masks, many steps.

Models are chains of layers with one weight each, whose losses are their outputs: all values are exact.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from .nets import PLAIN, Keras, outputs_alone, scalars

STARTS = {"one": 1.0, "two": 2.0}
"""The weights of the two layers that have one."""
RATES = (2.0**-4, 2.0**-6, 2.0**-5)
"""The learning rate of each epoch, which has one update."""
EXACT = 2
"""The losses of the later epochs have more bits than float32."""
SHARES = {"one": 2.0, "two": 0.5}
"""How much the loss of each output counts."""
MODES: Dict[str, RunConfig] = {
    "plain": PLAIN.with_counts(1, 1, 1),
    "replicated": PLAIN.with_counts(1, 1, 5),
    "accumulating": PLAIN.with_counts(1, 4, 3),
    "pipelined": PLAIN.with_counts(1, 6, 1, stages=(0, 1, 2)),
    "pipelined-replicated": PLAIN.with_counts(1, 6, 4, stages=(0, 1, 2)),
}


def samples(config: RunConfig) -> Tuple[np.ndarray, Dict[str, np.ndarray]]:
    """As many samples as an update takes, and what each counts for either output; neighbours differ in all of it."""
    number = np.arange(config.gradient_accumulation * config.replicas)
    x = np.where(number % 3 == 1, -1.0, 1.0) * (1 + number % 4)
    return x, {"one": number % 3 + 1.0, "two": 4.0 - 2 * (number % 2) - (number % 3 == 0)}


def chain(keras: Keras, stages: Tuple[int, ...]) -> Tuple[Any, Dict[str, Any]]:
    """An input and what two layers of one weight make of it, by their names; one without any is between them."""
    inputs = value = keras.tf.keras.Input((1,))
    one, two = (keras.scale(start, name=name) for name, start in STARTS.items())
    values = {}
    for number, layer in enumerate((one, keras.tf.keras.layers.Activation("linear", name="between"), two)):
        with keras.stage_of(stages, number):
            values[layer.name] = value = layer(value)
    return inputs, {name: values[name] for name in STARTS}


def expected(config: RunConfig) -> Tuple[List[float], Dict[str, np.ndarray]]:
    """Both weights after the epochs, and the mean losses of each epoch over the samples of the last replica."""
    x, counting = samples(config)
    sums = {name: float((x * own).sum()) for name, own in counting.items()}
    last = {name: float((x * own)[config.replicas - 1 :: config.replicas].sum()) for name, own in counting.items()}
    one, two = STARTS.values()
    losses: Dict[str, List[float]] = {"loss": [], "one_loss": [], "two_loss": []}
    for rate in RATES:
        losses["one_loss"].append(last["one"] * one)
        losses["two_loss"].append(last["two"] * one * two)
        losses["loss"].append(SHARES["one"] * last["one"] * one + SHARES["two"] * last["two"] * one * two)
        of_one = SHARES["one"] * sums["one"] + SHARES["two"] * sums["two"] * two
        of_two = SHARES["two"] * sums["two"] * one
        one, two = one - rate * of_one, two - rate * of_two
    count = np.float32(config.gradient_accumulation)
    return [one, two], {name: np.asarray(values, np.float32) / count for name, values in losses.items()}


@pytest.mark.ipus(16)
@pytest.mark.parametrize("mode", MODES)
def test_samples_outputs_and_rates_count_as_asked(keras: Keras, mode: str) -> None:
    """Samples have a weight for each output, outputs one in the loss, and a callback sets the rate of every epoch."""
    config, api = MODES[mode], keras.tf.keras
    x, counting = samples(config)
    column = x.astype(np.float32)[:, None]
    with keras.scope(config):
        model = api.Model(*chain(keras, config.stages))
        keras.compile(model, config, dict.fromkeys(STARTS, outputs_alone), loss_weights=SHARES)
        keras.options(model, config)
        history = model.fit(
            column,
            dict.fromkeys(STARTS, column),
            sample_weight={name: own.astype(np.float32) for name, own in counting.items()},
            batch_size=1,
            shuffle=False,
            epochs=len(RATES),
            callbacks=[api.callbacks.LearningRateScheduler(lambda epoch: RATES[epoch])],
            verbose=0,
        ).history

    weights, by_epoch = expected(config)
    check.equal(actual=scalars(model), expected=weights, what="the weights after three epochs")
    for name, values in by_epoch.items():
        seen = np.asarray(history.get(name), np.float32)
        check.equal(actual=len(seen), expected=len(RATES), what=f"the number of epochs with a {name}")
        check.identical(actual=seen[:EXACT], expected=values[:EXACT], what=f"{name} by epoch, of the last replica")


@pytest.mark.ipus(16)
@pytest.mark.parametrize("mode", ["accumulating", "pipelined-replicated"])
def test_classes_count_as_asked(keras: Keras, mode: str) -> None:
    """A sample counts as much as its class."""
    config, counting, api = MODES[mode], {0: 1.0, 1: 4.0, 2: 0.5}, keras.tf.keras
    number = np.arange(config.gradient_accumulation * config.replicas)
    x = (1.0 + number % 7).astype(np.float32)[:, None]
    with keras.scope(config):
        inputs, outputs = chain(keras, config.stages)
        model = api.Model(inputs, outputs["two"])
        keras.compile(model, config, outputs_alone, optimizer=api.optimizers.SGD(RATES[0]))
        keras.options(model, config)
        model.fit(x, number % 3, class_weight=counting, batch_size=1, shuffle=False, verbose=0)

    total = RATES[0] * sum(counting[index % 3] * value for index, value in enumerate(x[:, 0].tolist()))
    one, two = STARTS.values()
    expected_weights = [one - total * two, two - total * one]
    check.equal(actual=scalars(model), expected=expected_weights, what="the weights after one update")


@pytest.mark.ipus(4)
@pytest.mark.parametrize("stages", [(), (0, 1, 2)], ids=["whole", "pipelined"])
def test_masks_pass_from_layer_to_layer(keras: Keras, tf: Any, stages: Tuple[int, ...]) -> None:
    """Steps of a sequence that a layer has masked do not count in a later one, whichever stage it is in."""
    config = PLAIN.with_counts(1, 6, 1, stages=stages)
    x = np.zeros((6, 8, 1), np.float32)
    for sample, lengths in enumerate(((1,), (0, 3), (1, 2, 4, 7), (5, 6), (7,), (0, 1, 2, 3))):
        x[sample, list(lengths), 0] = [4.0 * sample + 2.0**place for place in lengths]
    layers = [
        tf.keras.layers.Masking(0.0), tf.keras.layers.Activation("linear"), tf.keras.layers.GlobalAveragePooling1D(),
    ]  # fmt: skip
    with keras.scope(config):
        value = inputs = tf.keras.Input((8, 1))
        for number, layer in enumerate(layers):
            with keras.stage_of(stages, number):
                value = layer(value)
        model = tf.keras.Model(inputs, value)
        model.compile(steps_per_execution=6)
        if stages:
            model.set_pipelining_options(6)
        predicted = model.predict(x, batch_size=1, verbose=0)

    means = x.sum(axis=1) / (x != 0).sum(axis=1)
    check.identical(actual=predicted, expected=means.astype(np.float32), what="the mean of what is not masked")


LONG = PLAIN.with_counts(34, 1, 3)


@pytest.mark.ipus(3)
def test_an_execution_of_many_steps_is_one_of_few_repeated(keras: Keras, tf: Any) -> None:
    """However many steps an execution has, each updates once; logs and predictions are those of all, in order."""
    steps, replicas = LONG.device_iterations, LONG.replicas
    x = (1.0 + np.arange(steps * replicas) % 5).astype(np.float32)[:, None]
    seen: List[float] = []
    callback = tf.keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(logs["loss"]))
    with keras.scope(LONG):
        model = tf.keras.Sequential([keras.scale()])
        keras.compile(model, LONG, outputs_alone, optimizer=tf.keras.optimizers.SGD(2.0**-9))
        first = model.fit(x, x, batch_size=1, shuffle=False, verbose=0).history["loss"]
        model.set_asynchronous_callbacks(True)
        model.fit(x, x, batch_size=1, shuffle=False, callbacks=[callback], verbose=0)
        predicted = model.predict(x, batch_size=1, verbose=0)

    by_step = np.tile(x.reshape(steps, replicas), (2, 1))
    weights = 1.0 - 2.0**-9 * np.concatenate([[0.0], np.cumsum(by_step.sum(axis=1))])
    losses = (weights[:-1] * by_step[:, -1]).reshape(2, steps)
    means = np.cumsum(losses, axis=1, dtype=np.float32) / np.arange(1, steps + 1, dtype=np.float32)
    check.equal(actual=int(model.optimizer.iterations), expected=2 * steps, what="the updates of two executions")
    check.equal(actual=scalars(model), expected=[float(weights[-1])], what="the weight")
    check.identical(actual=np.asarray(first, np.float32), expected=means[0, -1:], what="the loss of the first fit")
    check.identical(actual=np.asarray(seen, np.float32), expected=means[1], what="the running loss by step")
    check.identical(actual=predicted, expected=(weights[-1] * x).astype(np.float32), what="the predictions")
