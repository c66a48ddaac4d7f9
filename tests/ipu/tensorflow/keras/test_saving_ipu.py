"""Saving and restoring Keras models: weights are those of the device, and training goes on where it was."""

from __future__ import annotations

import importlib
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Iterator, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.nets import Data, distinct_micro_batches
from ipu_conformance.run import RunConfig

from ...training import cut
from .nets import MLP, PLAIN, Keras, adam, momentum, stages_of

CONFIGS = {
    "plain": PLAIN,
    "replicated": replace(PLAIN, replicas=2),
    "pipelined": cut("mlp", replace(PLAIN, device_iterations=1, gradient_accumulation=4), 2),
}
WEIGHTS = {"tf": "weights", "h5-weights": "weights.h5"}
FORMATS = {"saved-model": "model", "h5": "model.h5", "keras": "model.keras"}


@pytest.fixture(autouse=True)
def _old_format() -> Iterator[None]:
    """Keras advises against its older formats, which clients of the vendor's version use."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "You are saving your model as an HDF5 file", UserWarning)
        yield


@pytest.fixture
def saved(keras: Keras, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Tuple[Path, List[np.ndarray]]]:
    """Trains a model of a configuration once; the folder in which it is saved in all formats, and its weights."""

    def run(name: str) -> Tuple[Path, List[np.ndarray]]:
        folder = tmp_path_factory.mktemp(name)
        with keras.ready(CONFIGS[name]) as model:
            model.fit(keras.dataset(CONFIGS[name]), verbose=0)
        for save, files in ((model.save_weights, WEIGHTS), (model.save, FORMATS)):
            for file in files.values():
                save(str(folder / file))
        return folder, model.get_weights()

    return lambda name: keras.once(("saved", name), lambda: run(name))


def check_weights(model: Any, expected: List[np.ndarray]) -> None:
    """A model holds these bits."""
    __tracebackhide__ = True
    weights = model.get_weights()
    check.equal(actual=len(weights), expected=len(expected), what="the number of weights")
    for number, (one, other) in enumerate(zip(weights, expected)):
        check.identical(actual=one, expected=other, what=f"weight {number}")


@pytest.mark.ipus(2)
@pytest.mark.parametrize("form", [*WEIGHTS, *FORMATS])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_whole_model_is_saved_and_restored(keras: Keras, saved: Any, name: str, form: str) -> None:
    """Saved weights are restored with the device's bits, and a saved model outside any scope too."""
    folder, weights = saved(name)
    if form in FORMATS:
        restored = keras.tf.keras.models.load_model(str(folder / FORMATS[form]))
    else:
        with keras.scope(CONFIGS[name]):
            restored = keras.build(seed=5)
            restored.load_weights(str(folder / WEIGHTS[form]))

    check_weights(restored, weights)


@pytest.mark.ipus(2)
@pytest.mark.parametrize("form", FORMATS)
def test_a_model_with_statistics_is_saved_after_replicas(keras: Keras, tf: Any, tmp_path: Path, form: str) -> None:
    """A model whose replicas have kept statistics is saved with those of the device, and can be loaded."""
    samples = np.arange(24, dtype=np.float32).reshape(8, 3) % 5
    with keras.scope(CONFIGS["replicated"]):
        layers = [tf.keras.Input((3,)), tf.keras.layers.Dense(2), tf.keras.layers.BatchNormalization()]
        model = tf.keras.Sequential(layers)
        model.compile(tf.keras.optimizers.SGD(0.125), "mse", steps_per_execution=2)
        model.fit(samples, samples[:, :2], batch_size=2, shuffle=False, verbose=0)
        model.save(str(tmp_path / FORMATS[form]))

    weights = model.get_weights()
    check.equal(actual=bool(weights[4].any()), expected=True, what="whether the moving mean has moved")
    check_weights(tf.keras.models.load_model(str(tmp_path / FORMATS[form])), weights)


def halves(keras: Keras, config: Any) -> List[Any]:
    """The data of the two steps of a configuration."""
    data, one = distinct_micro_batches(MLP, config), replace(config, steps=1)
    parts = [Data(data.inputs[step : step + 1], data.labels[step : step + 1]) for step in range(2)]
    return [keras.dataset(one, part) for part in parts]


TWO_STEPS = replace(PLAIN, device_iterations=2, replicas=2, steps=2)
STAGED = replace(CONFIGS["pipelined"], stages=(0, 0, 0, 0, 0, 1, 1), steps=2)
"""Stages that are not those of an even cut."""


@pytest.mark.ipus(2)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("config", "kind"),
    [(TWO_STEPS, "functional"), (STAGED, "sequential"), (STAGED, "functional")],
    ids=["replicated", "staged-sequential", "staged-functional"],
)
def test_a_loaded_model_belongs_to_the_scope(
    keras: Keras, tf: Any, tmp_path: Path, config: RunConfig, kind: str, form: str
) -> None:
    """A model that is loaded in a scope trains on from where it was, with the stages and options of the saved one."""
    path = str(tmp_path / FORMATS[form])
    if form != "saved-model" and not config.stages:  # Keras does not restore the state of an optimizer from one
        config = momentum(config)
    first, second = halves(keras, config)
    with keras.ready(config, kind) as model:
        model.fit(first, verbose=0)
        model.save(path)
        restored = tf.keras.models.load_model(path)
        stages = stages_of(model)
        check.equal(actual=set(stages), expected={0, 1} if config.stages else {None}, what="the saved stages")
        check.equal(actual=stages_of(restored), expected=stages, what="the stages of the loaded model")
        keras.compile(restored, config, optimizer=restored.optimizer)
        restored.fit(second, verbose=0)

    keras.check_trained(restored, config)


@pytest.mark.ipus(2)
@pytest.mark.parametrize("change", [momentum, adam], ids=["momentum", "adam"])
@pytest.mark.parametrize("replicas", [1, 2])
def test_training_goes_on_from_a_checkpoint(keras: Keras, tf: Any, tmp_path: Path, change: Any, replicas: int) -> None:
    """A checkpoint holds the optimizer's state too: restored on another model, training goes on as if uncut."""
    config = change(replace(PLAIN, device_iterations=2, replicas=replicas, steps=2))
    first, second = halves(keras, config)
    with keras.ready(config) as model:
        model.fit(first, verbose=0)
        path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(tmp_path / "checkpoint"))
        other = keras.build(seed=5)
        keras.compile(other, config)
        other.fit(second, verbose=0)
        tf.train.Checkpoint(model=other, optimizer=other.optimizer).restore(path)
        other.fit(second, verbose=0)

    keras.check_trained(other, config)


@pytest.mark.parametrize("form", WEIGHTS)
def test_weights_are_saved_beside_a_wrapped_optimizer(keras: Keras, tf: Any, tmp_path: Path, form: str) -> None:
    """A model that is compiled with a wrapper writes the weights that it has learned, and another one reads them."""
    wrapper = importlib.import_module("keras.ipu.optimizers").GradientAccumulationOptimizer
    path = str(tmp_path / WEIGHTS[form])
    with keras.scope(PLAIN):
        trained, restored = keras.build(), keras.build(seed=5)
        for model in (trained, restored):
            keras.compile(model, PLAIN, optimizer=wrapper(tf.keras.optimizers.SGD(0.125, momentum=0.5), 2))
        trained.fit(keras.dataset(PLAIN), verbose=0)
        with check.accepted(f"saving weights as {form}"):
            trained.save_weights(path)
        with check.accepted(f"loading weights from {form}"):
            restored.load_weights(path)

    check_weights(restored, trained.get_weights())


@pytest.mark.ipus(2)
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_callback_saves_checkpoints(keras: Keras, tf: Any, tmp_path: Path, replicas: int) -> None:
    """ModelCheckpoint saves the weights of every epoch."""
    config = replace(PLAIN, replicas=replicas)
    path = str(tmp_path / "epoch-{epoch}")
    with keras.ready(config) as model:
        callback = tf.keras.callbacks.ModelCheckpoint(path, save_weights_only=True)
        model.fit(keras.dataset(config), epochs=2, callbacks=[callback], verbose=0)
        first = keras.build(seed=5)
        first.load_weights(path.format(epoch=1))
        second = keras.build(seed=5)
        second.load_weights(path.format(epoch=2))

    check_weights(second, model.get_weights())
    keras.check_trained(first, config)


@pytest.mark.ipus(4)
@pytest.mark.parametrize("how", ["set_weights", "assign", "assign_add", "load_weights", "set_layer_weights"])
def test_what_the_host_writes_reaches_every_replica(keras: Keras, tmp_path: Path, how: str) -> None:
    """Weights that are set between two fits are those that every replica goes on with."""
    config = replace(PLAIN, replicas=4)
    with keras.ready(config) as model:
        start, path = model.get_weights(), str(tmp_path / "start")
        model.save_weights(path)
        model.fit(keras.dataset(config), verbose=0)
        if how == "set_weights":
            model.set_weights(start)
        elif how == "load_weights":
            model.load_weights(path)
        elif how == "set_layer_weights":
            for layer in model.layers:
                layer.set_weights([start.pop(0) for _ in layer.weights])
        for variable, value in zip(model.variables, start):
            if how == "assign":
                variable.assign(value)
            elif how == "assign_add":
                variable.assign_sub(variable)
                variable.assign_add(value)
        model.fit(keras.dataset(config), verbose=0)

    keras.check_trained(model, config)


@pytest.mark.parametrize("kind", ["sequential", "functional"])
def test_a_model_can_be_cloned_and_described(keras: Keras, tf: Any, kind: str) -> None:
    """clone_model and from_config give models of the same kind with the IPU's methods inside a scope."""
    with keras.scope(PLAIN):
        model = keras.build(kind)
        clone = tf.keras.models.clone_model(model)
        again = type(model).from_config(model.get_config())

    for copied in (clone, again):
        check.equal(actual=type(copied).__name__, expected=type(model).__name__, what="the name of the copy's class")
        check.contains(actual=dir(copied), expected="set_pipelining_options", what="the copy")


def test_json_names_the_class_that_the_user_knows(keras: Keras) -> None:
    """to_json of a model names the same class and layers inside and outside a scope."""
    outside = keras.build("sequential")
    with keras.scope(PLAIN):
        inside = keras.build("sequential")

    described, expected = (json.loads(each.to_json()) for each in (inside, outside))
    check.equal(actual=described["class_name"], expected=expected["class_name"], what="the class of the model in JSON")
    layers = [[layer["class_name"] for layer in each["config"]["layers"]] for each in (described, expected)]
    check.equal(actual=layers[0], expected=layers[1], what="the classes of the layers in JSON")


def test_predictions_of_a_restored_model_are_the_same(keras: Keras, tf: Any, tmp_path: Path) -> None:
    """A restored model predicts the same bits in the same scope."""
    with keras.ready(PLAIN) as model:
        model.fit(keras.dataset(PLAIN), verbose=0)
        model.save(str(tmp_path / "model"))
        restored = tf.keras.models.load_model(str(tmp_path / "model"))
        keras.compile(restored, PLAIN)
        expected, actual = (each.predict(keras.dataset(PLAIN), verbose=0) for each in (model, restored))

    check.identical(actual=actual, expected=expected, what="the predictions of the restored model")
