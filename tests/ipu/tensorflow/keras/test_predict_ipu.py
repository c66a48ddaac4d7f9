"""Prediction with Keras models: outputs in the order of the data, in the structure of the model."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ipu_conformance import check

from ...training import cut
from .nets import KINDS, PLAIN, Keras

CONFIGS = {
    "plain": replace(PLAIN, device_iterations=4),
    "replicated": replace(PLAIN, device_iterations=4, replicas=2),
    "replicated-4": replace(PLAIN, device_iterations=1, replicas=4),
    "pipelined": cut("mlp", replace(PLAIN, device_iterations=1, gradient_accumulation=4), 2),
    "pipelined-replicated": cut("mlp", replace(PLAIN, device_iterations=1, gradient_accumulation=4, replicas=2), 2),
}


@pytest.mark.ipus(4)
@pytest.mark.parametrize("name", CONFIGS)
def test_predictions_are_those_specified(keras: Keras, name: str) -> None:
    """predict returns the net's values for all samples, in the order of the data."""
    keras.check_predictions(CONFIGS[name])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_predicts(keras: Keras, kind: str) -> None:
    """Sequential, Functional and subclassed models predict alike."""
    keras.check_predictions(CONFIGS["plain"], kind)


@pytest.mark.ipus(4)
@pytest.mark.parametrize("name", CONFIGS)
def test_a_model_may_have_several_outputs(keras: Keras, tf: Any, name: str) -> None:
    """Every output comes back under its name with all samples."""
    config = CONFIGS[name]
    x = np.arange(8 * config.replicas, dtype=np.float32)[: 4 * config.replicas if config.stages else 4][:, None]
    with keras.scope(config):
        inputs = tf.keras.Input((1,))
        with keras.stage(0) if config.stages else contextlib.nullcontext():
            one = tf.keras.layers.Lambda(lambda value: value + 1)(inputs)
        with keras.stage(1) if config.stages else contextlib.nullcontext():
            two = tf.keras.layers.Lambda(lambda value: value * 2)(one)
        model = tf.keras.Model(inputs, {"one": one, "two": two})
        model.compile(steps_per_execution=len(x) // config.replicas)
        if config.stages:
            model.set_pipelining_options(4)
        predicted = model.predict(x, batch_size=1, verbose=0)

    check.equal(actual=sorted(predicted), expected=["one", "two"], what="the names of the outputs")
    check.identical(actual=predicted["one"], expected=x + 1, what="output one of all samples")
    check.identical(actual=predicted["two"], expected=2 * x + 2, what="output two of all samples")


@pytest.mark.ipus(2)
@pytest.mark.parametrize("execution", [1, 2])
def test_the_length_of_an_execution_changes_nothing(keras: Keras, execution: int) -> None:
    """Any steps_per_execution that divides the steps gives the same predictions."""
    config = CONFIGS["replicated"]
    short = keras.predict(config, steps_per_execution=execution)

    check.identical(actual=short, expected=keras.predict(config), what=f"the predictions in executions of {execution}")


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
