"""However the slots of a plan are built into a graph, they compute the same bits."""

from __future__ import annotations

from typing import Any, Iterator, List

import numpy as np
import pytest

from ipu_conformance.emulator.tensorflow.run import slot_functions

COUNT = 8
BUILT = {"one by one": (10**6, 0), "called": (0, 0), "called or inlined": (0, 10**6)}
"""The most slots or whole steps that are built one by one, and the largest that TensorFlow may inline."""


@pytest.fixture
def ipu(tf: Any) -> Iterator[Any]:
    """The vendor's package with two IPUs."""
    from tensorflow.python import ipu

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    yield ipu
    ipu.utils.reset_ipu_configuration()


def trained(ipu: Any, *, pipelined: bool) -> List[Any]:
    """The weights after updates of eight micro-batches, which no sum of floats leaves exact."""
    import tensorflow as tf

    random = np.random.default_rng(7)
    samples, answers = random.normal(size=(32, 6)), random.normal(size=(32, 3))
    data = tf.data.Dataset.from_tensor_slices(tuple(np.float32(each) for each in (samples, answers)))
    with ipu.ipu_strategy.IPUStrategy().scope():
        layers = [tf.keras.layers.Dense(size, "tanh", kernel_initializer="ones") for size in (5, 3)]
        model = tf.keras.Sequential(layers)
        model.build((2, 6))
        if pipelined:
            model.set_pipeline_stage_assignment([0, 1])
            model.set_pipelining_options(gradient_accumulation_steps_per_replica=COUNT)
        else:
            # Two IPUs are two replicas where nothing is pipelined.
            model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=COUNT)
        model.compile("sgd", "mse", steps_per_execution=COUNT)
        model.fit(data.batch(2, drop_remainder=True), epochs=1 if not pipelined else 2, verbose=0)
        return [np.array(weight) for weight in model.get_weights()]


@pytest.mark.parametrize("pipelined", [False, True], ids=["replicated", "pipelined"])
def test_slots_may_be_built_in_any_way(ipu: Any, monkeypatch: pytest.MonkeyPatch, pipelined: bool) -> None:
    """Slots that stand in the graph, that are called and that are inlined train the same weights to the bit."""
    found = []
    for most, largest in BUILT.values():
        monkeypatch.setattr(slot_functions, "MOST_UNROLLED", most)
        monkeypatch.setattr(slot_functions, "MOST_UNROLLED_STEPS", most)
        monkeypatch.setattr(slot_functions, "LARGEST_INLINED", largest)
        found.append(trained(ipu, pipelined=pipelined))

    for other in found[1:]:
        for one, same in zip(found[0], other):
            assert one.tobytes() == same.tobytes()
