"""Gradients that a model's own step returns are those of the program that the device was given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check, frameworks

from ..training.dumped import RATE, executed, graph_of
from .nets import PLAIN, Keras

WEIGHTS = {
    "first/kernel": [[1.0, 2.0], [-2.0, 1.0], [3.0, -1.0]],
    "first/bias": [1.0, -1.0],
    "last/kernel": [[2.0, 1.0, -1.0, 1.0], [-1.0, 1.0, 2.0, -2.0]],
    "last/bias": [0.0, 1.0, -1.0, 2.0],
}
"""Whole numbers, so that no gradient is rounded."""
SAMPLES = 2
COUNTS = {"single": (1, 1), "accumulated": (3, 1), "replicated": (1, 4), "both": (4, 3)}
"""Micro-batches of an update, and replicas."""


def network(tf: Any) -> Any:
    """Two layers whose step returns the gradient of each of its weights."""

    class Network(tf.keras.Model):
        def train_step(self, data: Tuple[Any, Any]) -> Dict[str, Any]:
            samples, wanted = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.square(self(samples, training=True) - wanted))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            return {f"gradient {number}": gradient for number, gradient in enumerate(gradients)}

    x = tf.keras.layers.Input((3,), SAMPLES)
    hidden = tf.keras.layers.Dense(2, activation="relu", name="first")(x)
    return Network(x, tf.keras.layers.Dense(4, name="last")(hidden))


@pytest.mark.parametrize(
    "counts", [pytest.param(each, id=word, marks=pytest.mark.ipus(each[1])) for word, each in COUNTS.items()]
)
def test_the_gradients_of_the_executed_dump_are_those_that_the_device_returned(
    keras: Keras, counts: Tuple[int, int]
) -> None:
    """Each replica has the gradients of the last micro-batch of an update as the program computes them, bit for bit."""
    accumulation, replicas = counts
    size = accumulation * replicas
    samples = (np.arange(3.0 * SAMPLES * size).reshape(size, SAMPLES, 3) % 5 - 2).astype(np.float32)
    wanted = (np.arange(4.0 * SAMPLES * size).reshape(size, SAMPLES, 4) % 3).astype(np.float32)
    seen: List[Dict[str, Any]] = []
    tf = keras.tf
    with keras.scope(replace(PLAIN, replicas=replicas)):
        model = network(tf)
        model.set_weights([np.array(value, np.float32) for value in WEIGHTS.values()])
        model.compile(tf.keras.optimizers.SGD(2.0**-6), steps_per_execution=accumulation)
        model.set_replication_options(replicated_metric_reduction_method="LIST")
        if accumulation > 1:
            model.set_gradient_accumulation_options(accumulation)
        noted = tf.keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(dict(logs)))
        data = tf.data.Dataset.from_tensor_slices((samples, wanted))
        model.fit(data, steps_per_epoch=size, callbacks=[noted], verbose=0)
        program = frameworks.ir("tensorflow", model)
    graph = graph_of(program)
    held = {**{name: np.array(value) for name, value in WEIGHTS.items()}, RATE: np.asarray(2.0**-6)}
    told = executed(graph, held, list(zip(samples, wanted))).outputs

    for name, output in zip(sorted(seen[-1]), graph.outputs):
        returned = np.asarray(seen[-1][name], np.float32)
        values = told[output].astype(np.float32).reshape(returned.shape)
        check.identical(actual=returned, expected=values, what=f"the {name}")
