"""Prediction with Keras models: outputs in the order of the data, in the structure of the model."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ipu_conformance import check

from ...training import cut
from .nets import PLAIN, Keras, check_predictions, kinds_of

CONFIGS = {
    "plain": replace(PLAIN, device_iterations=4),
    "replicated": replace(PLAIN, device_iterations=2, replicas=2),
    "replicated-4": replace(PLAIN, device_iterations=1, replicas=4),
    "pipelined": cut("mlp", replace(PLAIN, device_iterations=1, gradient_accumulation=4), 2),
    "pipelined-replicated": cut("mlp", replace(PLAIN, device_iterations=1, gradient_accumulation=4, replicas=2), 2),
}


@pytest.mark.ipus(4)
@pytest.mark.parametrize("name", CONFIGS)
def test_predictions_are_those_specified(keras: Keras, name: str) -> None:
    """predict returns the net's values for all samples, in the order of the data."""
    check_predictions(keras, CONFIGS[name])


@pytest.mark.parametrize("kind", kinds_of("mlp"))
def test_every_kind_of_model_predicts(keras: Keras, kind: str) -> None:
    """Sequential, Functional and subclassed models predict alike."""
    check_predictions(keras, CONFIGS["plain"], kind)


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

    assert predicted["one"].tolist() == (x + 1).tolist()
    assert predicted["two"].tolist() == (2 * x + 2).tolist()


@pytest.mark.ipus(2)
@pytest.mark.parametrize("execution", [1, 2, 4])
def test_the_length_of_an_execution_changes_nothing(keras: Keras, execution: int) -> None:
    """Any steps_per_execution that divides the steps gives the same predictions."""
    config = replace(PLAIN, device_iterations=4, replicas=2)
    results = []
    for steps in (execution, 4):
        with keras.ready(config, steps_per_execution=steps) as model:
            results.append(model.predict(keras.dataset(config), verbose=0))

    check.identical(actual=results[0], expected=results[1], what="the predictions")


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

    assert predicted.tolist() == (-x).tolist()


def test_a_partial_batch_is_refused(keras: Keras) -> None:
    """Samples that do not fill the last batch are an error."""
    refused = pytest.raises(ValueError, match="not a multiple of the batch size")
    with keras.ready(PLAIN, steps_per_execution=1) as model, refused:
        model.predict(np.ones((5, 6), np.float32), batch_size=2, verbose=0)
