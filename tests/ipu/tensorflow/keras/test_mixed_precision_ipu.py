"""The policy of mixed precision: layers compute in float16, and their variables are held and updated in float32."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List

import numpy as np
import pytest

from ipu_conformance import check

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


def weight_of(tf: Any, ipu: Any, kind: str) -> Any:
    """A model of one weight, which its output is the product of the input with."""
    start, layers = tf.keras.initializers.Constant(START), tf.keras.layers
    if kind == "conv":
        stack = [layers.Reshape((1, 1, 1)), layers.Conv2D(1, 1, use_bias=False, kernel_initializer=start),
                 layers.Flatten()]  # fmt: skip
    else:
        stack = [layers.Dense(1, use_bias=False, kernel_initializer=start)]
    if kind == "alone":
        one = layers.Lambda(lambda x: x * tf.cast(ipu.replication_ops.replication_index() >= 0, x.dtype))
        stack.append(one)
    model = tf.keras.Sequential(stack)
    model.build((1, 1))
    return model


def samples(tf: Any, values: List[float]) -> Any:
    """A data set of such inputs one by one."""
    column = np.array(values, np.float32)[:, np.newaxis]
    return tf.data.Dataset.from_tensor_slices((column, column)).batch(1, drop_remainder=True)


@pytest.mark.parametrize("kind", KINDS)
def test_layers_compute_in_half(tf: Any, ipu: Any, strategy: Any, kind: str) -> None:
    """A layer takes its weight in float16, whose variable is in float32."""
    with strategy.scope():
        model = weight_of(tf, ipu, kind)
        model.compile(steps_per_execution=3)
        predicted = model.predict(samples(tf, [3.0, -0.5, 8.0]).map(lambda x, _: x), verbose=0)

    held = model.get_weights()[0]
    check.dtype(actual=held, expected="float32", what="the variable")
    check.equal(actual=held.ravel().tolist(), expected=[START], what="the variable")
    check.dtype(actual=predicted, expected="float16", what="the predictions")
    check.equal(actual=predicted.ravel().tolist(), expected=[3.0, -0.5, 8.0], what="the predictions")


@pytest.mark.ipus(2)
@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_variables_are_updated_in_single(
    tf: Any, ipu: Any, configure: Callable[..., Any], kind: str, replicas: int, accumulation: int
) -> None:
    """An update changes the variable in float32 by the sum of the gradients, and every replica goes on with it."""
    configure(replicas)
    values = [(number + 1) / 4 for number in range(8 * replicas)]
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = weight_of(tf, ipu, kind)
        if accumulation > 1:
            model.set_gradient_accumulation_options(accumulation)
        plain = tf.keras.optimizers.SGD(RATE)
        optimizer = tf.keras.mixed_precision.LossScaleOptimizer(plain, dynamic=False, initial_scale=16)
        model.compile(optimizer, loss=lambda labels, outputs: outputs, steps_per_execution=8)
        model.fit(samples(tf, values), verbose=0)

    weight = float(np.ravel(model.get_weights()[0])[0])
    check.equal(actual=weight, expected=START - RATE * sum(values), what="the weight after all updates")
