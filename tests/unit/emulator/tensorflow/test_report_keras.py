"""Reports of Keras models hold the estimates of their layers, by stage."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

import pytest

from ipu_conformance.emulator.core.device import MK2
from ipu_conformance.emulator.core.plan import Kind, plan
from ipu_conformance.emulator.core.topology import Topology
from ipu_conformance.emulator.tensorflow.config import system
from ipu_conformance.emulator.tensorflow.config.ipu_config import IPUConfig
from ipu_conformance.emulator.tensorflow.keras import first_execution
from ipu_conformance.emulator.tensorflow.reports import keras

from ..core.graphs import chain


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Reports are asked for."""
    options = {"autoReport.all": "true", "autoReport.directory": str(tmp_path)}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(options))


class Assigned:
    """A layer and its stage, as a model tells of them."""

    def __init__(self, layer: Any, stage: Any) -> None:
        self.layer, self.pipeline_stage = layer, stage


@pytest.fixture
def model(tf: Any) -> Any:
    """Two dense layers, compiled."""
    layers = [
        tf.keras.layers.Dense(64, name="first", activation="relu", input_shape=(32,)),
        tf.keras.layers.Dense(16, name="second"),
    ]
    made = tf.keras.Sequential(layers)
    made.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return made


def element(tf: Any) -> Any:
    """The spec of eight samples with labels."""
    return tf.TensorSpec([8, 32]), tf.TensorSpec([8], tf.int32)


@pytest.mark.usefixtures("wanted")
@pytest.mark.parametrize("phase", ["train", "evaluate", "predict"])
def test_a_model_in_one_piece_is_reported(tf: Any, model: Any, phase: str) -> None:
    """Each phase leaves a report of its own name; training has gradients and Adam's two states beside the weights."""
    planned = plan((0,), "sequential", 1, training=phase == "train")
    folder = keras.write(model, phase, planned, element(tf))

    assert folder is not None
    profile = json.loads((folder / "profile.json").read_text())
    (ipu,) = profile["memory"]["ipus"]
    weights = 4 * (32 * 64 + 64 + 64 * 16 + 16)
    trained = phase == "train"
    assert profile["program"]["name"] == keras.NAMES[phase]
    assert [ipu["weights"], ipu["gradients"], ipu["optimizer_state"]] == [
        weights,
        weights * trained,
        2 * weights * trained,
    ]
    forward = 8 * (32 * 64 + 64 * 16)
    assert profile["cost"]["macs"] == forward * (3 if trained else 1)


@pytest.mark.usefixtures("wanted")
def test_layers_are_dealt_out_by_their_stages(tf: Any, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every IPU holds the weights of the layers of its stage, and the loss belongs to the last."""
    assigned = [Assigned(layer, stage) for stage, layer in enumerate(model.layers)]
    monkeypatch.setattr(type(model), "get_pipeline_stage_assignment", lambda self: assigned, raising=False)
    folder = keras.write(model, "train", plan((0, 1), "grouped", 4), element(tf))

    assert folder is not None
    profile = json.loads((folder / "profile.json").read_text())
    assert [ipu["weights"] for ipu in profile["memory"]["ipus"]] == [4 * (32 * 64 + 64), 4 * (64 * 16 + 16)]
    assert profile["ops"]["SoftmaxCrossEntropyLoss"] == 1


def test_nothing_is_read_unasked(tf: Any, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variable the model is not built again."""
    monkeypatch.delenv("POPLAR_ENGINE_OPTIONS", raising=False)
    monkeypatch.setattr(keras, "graph_of", None)

    assert keras.write(model, "train", plan((0,), "sequential", 1), element(tf)) is None


@pytest.mark.usefixtures("wanted")
def test_a_function_is_reported_once_for_each_kind_of_data(tf: Any, model: Any, tmp_path: Path) -> None:
    """A report is written after the first execution, and again for another shape; functions are wrapped once."""
    seen = []

    def execute(iterator: Any) -> Any:
        seen.append(len(list(tmp_path.iterdir())))
        return next(iterator)

    planned = plan((0,), "sequential", 1)
    function = first_execution.watched(model, "train", lambda: planned, execute)
    for size in (8, 8, 4):
        data = tf.data.Dataset.from_tensor_slices((tf.ones([2 * size, 32]), tf.ones([2 * size], tf.int32)))
        iterator = iter(data.batch(size, drop_remainder=True))
        function(iterator)
        function(iterator)

    assert seen == [0, 1, 1, 1, 1, 2]
    assert len(list(tmp_path.iterdir())) == 2
    assert first_execution.watched(model, "train", lambda: planned, function) is function


def pipeline(tf: Any, model: Any, monkeypatch: pytest.MonkeyPatch, stages: int) -> Any:
    """The model with its layers on so many stages."""
    assigned = [Assigned(layer, min(stage, stages - 1)) for stage, layer in enumerate(model.layers)]
    monkeypatch.setattr(type(model), "get_pipeline_stage_assignment", lambda self: assigned, raising=False)
    return model


SMALL = replace(MK2, name="small", memory_per_tile=40 * 1024)
"""A device of 57.5 MiB, of which the code takes about half."""


@pytest.mark.parametrize(("phase", "stages", "fits"), [
    ("predict", 1, True), ("train", 1, False), ("train", 2, True),
])  # fmt: skip
def test_a_program_that_no_ipu_holds_is_refused(
    tf: Any, monkeypatch: pytest.MonkeyPatch, phase: str, stages: int, fits: bool
) -> None:
    """Weights alone fit on one IPU; with gradients and state they need two, and the error names the tensors."""
    layers = [tf.keras.layers.Dense(1024, name=f"layer{index}", input_shape=(1024,)) for index in range(2)]
    model = tf.keras.Sequential(layers)
    model.compile("adam", "mse")
    pipeline(tf, model, monkeypatch, stages)
    by = "grouped" if stages > 1 else "sequential"
    planned = plan(Topology(tuple(range(stages)), device=SMALL), by, 2 * stages, training=phase == "train")
    spec = (tf.TensorSpec([1, 1024]), tf.TensorSpec([1, 1024]))
    ran = []
    run = first_execution.watched(model, phase, lambda: planned, ran.append)
    iterator = iter(tf.data.Dataset.from_tensors(tuple(tf.ones(one.shape) for one in spec)))
    if fits:
        run(iterator)
    else:
        with pytest.raises(tf.errors.ResourceExhaustedError, match=r"Out of memory: IPU 0 needs .*layer0"):
            run(iterator)

    assert len(ran) == fits


def test_small_programs_are_not_estimated(tf: Any, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is far from filling an IPU is not built again for an estimate; unknown shapes may be large."""
    built = []
    monkeypatch.setattr(keras, "graph_of", lambda *arguments: built.append(arguments) or chain([4, 4]))
    for spec in (element(tf), (tf.TensorSpec([None, 32]), tf.TensorSpec([None], tf.int32))):
        first_execution.require_memory(model, "train", plan((0,), "sequential", 1), spec)

    assert len(built) == 1


@pytest.mark.parametrize(
    ("allowed", "training", "stages"), [(True, True, 3), (False, True, 3), (True, False, 3), (True, True, 1)]
)
def test_the_device_recomputes_if_it_is_allowed(tf: Any, allowed: bool, training: bool, stages: int) -> None:
    """With allow_recompute stages of a pipeline that trains are recomputed, and reports keep what was planned."""
    options, expected = IPUConfig(), allowed and training and stages > 1
    options.allow_recompute = allowed
    system.configure(options._create_protobuf())
    try:
        again = system.recomputes(training, stages)
        planned = keras.on_device(plan(tuple(range(stages)), "grouped", 6, training=training, recompute=again))
    finally:
        system.reset()

    assert again is expected
    assert int((planned.columns["kind"] == Kind.RECOMPUTE).sum()) == (6 * (stages - 1) if expected else 0)


def test_nothing_is_recomputed_before_a_configuration() -> None:
    """Without a configuration in force nothing is recomputed."""
    system.reset()

    assert not system.recomputes(True, 3)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda optimizers: optimizers.SGD(), "sgd"),
        (lambda optimizers: optimizers.SGD(momentum=0.9), "momentum"),
        (lambda optimizers: optimizers.Adam(), "adam"),
        (lambda optimizers: optimizers.RMSprop(), "rmsprop"),
        (lambda optimizers: optimizers.RMSprop(centered=True), "rmsprop-centered"),
        (lambda optimizers: optimizers.Ftrl(), "sgd"),
    ],
    ids=["sgd", "momentum", "adam", "rmsprop", "centred", "other"],
)
@pytest.mark.parametrize("legacy", [False, True])
def test_optimizers_are_known_by_name(tf: Any, make: Callable[[Any], Any], name: str, legacy: bool) -> None:
    """Old and new optimizers of Keras count with the state that they keep."""
    optimizers = tf.keras.optimizers.legacy if legacy else tf.keras.optimizers

    assert keras.optimizer_of(make(optimizers)) == name
