"""How often a Keras model's step is built: once for each kind of data, with the variables that it makes."""

from __future__ import annotations

import importlib
from typing import Any, Dict, List

import numpy as np
import pytest

ELEMENTS, WIDTH = 12, 3
EXECUTION = "ipu_conformance.emulator.tensorflow.keras.execution"


@pytest.fixture
def ipu(tf: Any) -> Any:
    """The module of the device."""
    return importlib.import_module("tensorflow.python.ipu")


def scope_of(ipu: Any, ipus: int) -> Any:
    """A strategy of so many IPUs, entered."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.configure_ipu_system()
    return ipu.ipu_strategy.IPUStrategy().scope()


def counting_model(tf: Any, calls: List[str], *, lazy: bool = False) -> Any:
    """A linear model that notes how often its steps are built; a lazy one makes a variable in its step."""

    class Counting(tf.keras.Model):
        counted: Any = None

        def train_step(self, data: Any) -> Any:
            calls.append("train")
            if lazy and self.counted is None:
                self.counted = tf.Variable(0.0, trainable=False)
            logs = super().train_step(data)
            if lazy:
                self.counted.assign_add(1.0)
            return logs

        def test_step(self, data: Any) -> Any:
            calls.append("evaluate")
            return super().test_step(data)

    inputs = tf.keras.Input((WIDTH,))
    return Counting(inputs, tf.keras.layers.Dense(1, kernel_initializer="ones")(inputs))


def elements(tf: Any, batch: int = 2) -> Any:
    """Elements of which no two are alike."""
    x = np.arange(ELEMENTS * WIDTH, dtype=np.float32).reshape(ELEMENTS, WIDTH) / 64
    return tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1, keepdims=True) ** 2)).batch(batch, drop_remainder=True)


@pytest.mark.parametrize("execution", [1, 3])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_step_is_built_once(tf: Any, ipu: Any, execution: int, optimizer: str) -> None:
    """Metrics and optimizers make their variables while the step is built, and it is not built again."""
    calls: List[str] = []
    with scope_of(ipu, 1):
        model = counting_model(tf, calls)
        model.compile(optimizer, "mse", metrics=["mae"], steps_per_execution=execution)
        model.fit(elements(tf), epochs=3, verbose=0)
        model.evaluate(elements(tf), verbose=0)

    assert calls == ["train", "evaluate"]
    assert int(model._train_counter) == 3 * ELEMENTS // 2
    assert int(model._test_counter) == ELEMENTS // 2


def test_another_kind_of_data_is_another_program(tf: Any, ipu: Any) -> None:
    """Batches of another size build the step again; those of a size that was seen do not."""
    calls: List[str] = []
    with scope_of(ipu, 1):
        model = counting_model(tf, calls)
        model.compile("sgd", "mse")
        for batch in (2, 3, 2):
            model.fit(elements(tf, batch), verbose=0)

    assert calls == ["train"] * 2


def test_replicas_share_a_step(tf: Any, ipu: Any) -> None:
    """One that is alike on all replicas is built once for them all."""
    calls: List[str] = []
    with scope_of(ipu, 3):
        model = counting_model(tf, calls)
        model.compile("sgd", "mse", metrics=["mae"], steps_per_execution=2)
        model.fit(elements(tf), epochs=2, verbose=0)

    assert calls == ["train"]


def test_a_step_that_makes_a_variable_is_built_once(tf: Any, ipu: Any) -> None:
    """The variable is made outside of the graph, and counts every step."""
    calls: List[str] = []
    with scope_of(ipu, 1):
        model = counting_model(tf, calls, lazy=True)
        model.compile("sgd", "mse", steps_per_execution=3)
        model.fit(elements(tf), epochs=2, verbose=0)

    assert calls == ["train"]
    assert float(model.counted) == 2 * ELEMENTS // 2


def test_an_execution_of_one_step_trains_as_one_of_several(tf: Any, ipu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step on its own, steps that the host repeats and those of a loop leave the same bits."""
    weights: Dict[int, Any] = {}
    monkeypatch.setattr(importlib.import_module(EXECUTION), "MOST_ON_HOST", 2)
    for execution in (1, 2, 6):
        with scope_of(ipu, 1):
            model = counting_model(tf, [])
            model.compile(tf.keras.optimizers.SGD(0.1, momentum=0.5), "mse", steps_per_execution=execution)
            model.fit(elements(tf), epochs=2, verbose=0)
            weights[execution] = [array.tobytes() for array in model.get_weights()]

    assert weights[1] == weights[2] == weights[6]


def test_callbacks_find_the_graph(tf: Any, ipu: Any) -> None:
    """The graph of a run is where TensorBoard's callback looks for one."""
    with scope_of(ipu, 1):
        model = counting_model(tf, [])
        model.compile("sgd", "mse", steps_per_execution=3)
        model.fit(elements(tf), verbose=0)

    assert model.train_tf_function._concrete_variable_creation_fn.graph.name == "ipu_run"


@pytest.mark.parametrize(("kind", "gpus"), [("LSTM", 0), ("GRU", 0), ("LSTM", 1)])
def test_a_recurrent_layer_is_built_for_a_gpu_where_there_is_one(
    tf: Any, ipu: Any, monkeypatch: pytest.MonkeyPatch, kind: str, gpus: int
) -> None:
    """Keras would build a second version of the layer and of its gradient, which only a GPU runs."""
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda device_type=None: ["GPU:0"] * gpus)
    with scope_of(ipu, 1):
        layer = getattr(tf.keras.layers, kind)(WIDTH)
        graph = tf.function(layer, autograph=False).get_concrete_function(tf.TensorSpec([2, 5, 4])).graph
    names = [function.signature.name for function in graph.as_graph_def().library.function]

    assert any("standard" in name for name in names)
    assert any("gpu" in name for name in names) == bool(gpus)


def test_the_host_takes_data_as_they_are_written(tf: Any) -> None:
    """A data set is neither rewritten nor tuned, unless the program asks for it."""
    feeding = importlib.import_module("ipu_conformance.emulator.tensorflow.keras.feeding")
    asking = tf.data.Options()
    asking.autotune.enabled = True
    data = tf.data.Dataset.range(7)
    plain, asked = (feeding._as_written(each).options() for each in (data, data.with_options(asking)))

    assert (plain.autotune.enabled, plain.experimental_optimization.apply_default_optimizations) == (False, False)
    assert (asked.autotune.enabled, asked.experimental_optimization.apply_default_optimizations) == (True, False)
