"""The policy of mixed precision: layers compute in float16, and their variables are held and updated in float32."""

from __future__ import annotations

from typing import Any, Iterator, List

import numpy as np
import pytest

from ipu_conformance import check

from .nets import PLAIN, Keras, scalars

RATE = 0.125
START = 1 + 2.0**-12
"""A number that float32 holds, and that is 1 in float16."""
KINDS = ["dense", "conv", "alone"]
"""A product, a convolution, and a product in a model that every replica computes for itself."""


@pytest.fixture(autouse=True)
def _policy(tf: Any) -> Iterator[None]:
    """Models are made under the policy."""
    before = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    yield
    tf.keras.mixed_precision.set_global_policy(before)


def layers_of(keras: Keras, kind: str) -> List[Any]:
    """Layers of one weight, which their output is the product of the input with."""
    layers, start = keras.tf.keras.layers, keras.tf.constant_initializer(START)
    if kind == "conv":
        conv = layers.Conv2D(1, 1, use_bias=False, kernel_initializer=start)
        return [layers.Reshape((1, 1, 1)), conv, layers.Flatten()]
    index = keras.ipu.replication_ops.replication_index
    alone = layers.Lambda(lambda x: x * keras.tf.cast(index() >= 0, x.dtype))
    return [keras.scale(START), *([alone] if kind == "alone" else [])]


@pytest.mark.parametrize("kind", KINDS)
def test_layers_compute_in_half(keras: Keras, kind: str) -> None:
    """A layer takes its weight in float16, whose variable is in float32."""
    with keras.scope(PLAIN):
        model = keras.tf.keras.Sequential(layers_of(keras, kind))
        model.build((1, 1))
        model.compile(steps_per_execution=3)
        predicted = model.predict(np.array([[3.0], [-0.5], [8.0]], np.float32), batch_size=1, verbose=0)

    check.dtype(actual=model.get_weights()[0], expected="float32", what="the variable")
    check.equal(actual=scalars(model), expected=[START], what="the variable")
    check.dtype(actual=predicted, expected="float16", what="the predictions")
    check.equal(actual=predicted.ravel().tolist(), expected=[3.0, -0.5, 8.0], what="the predictions")


@pytest.mark.ipus(2)
@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_variables_are_updated_in_single(keras: Keras, kind: str, replicas: int, accumulation: int) -> None:
    """An update changes the variable in float32 by the sum of the gradients, and every replica goes on with it."""
    api, values = keras.tf.keras, [(number + 1) / 4 for number in range(8 * replicas)]

    def optimizer() -> Any:
        return api.mixed_precision.LossScaleOptimizer(api.optimizers.SGD(RATE), dynamic=False, initial_scale=16)

    config = PLAIN.with_counts(8 // accumulation, accumulation, replicas)
    model = keras.chained(config, layers_of(keras, kind), values, optimizer=optimizer)

    check.equal(actual=scalars(model), expected=[START - RATE * sum(values)], what="the weight after all updates")
