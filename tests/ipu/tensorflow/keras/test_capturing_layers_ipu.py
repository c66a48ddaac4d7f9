"""Layers that capture gradients of activations, and the optimizers that are handed them.

The loss is the square of one more than what a layer of the weight 2 makes of its input: all values are exact.
"""

from __future__ import annotations

import importlib
from typing import Any, Callable, Dict, Optional

import numpy as np
import pytest

from ipu_conformance import check

WEIGHT, RATE = 2.0, 2.0**-10
KINDS = {"CaptureUpstreamGradients": "{}_cug", "CaptureActivationGradients": "{}_cag_activation"}
"""The classes, and the tag of what each captures in a layer without a tag of its own."""


@pytest.fixture
def layers(tf: Any, ipu: Any) -> Any:
    """The module of the layers."""
    return importlib.import_module("keras.ipu.layers")


def dense(tf: Any, activation: Optional[str] = "relu", dtype: Optional[str] = None) -> Any:
    """One weight and an activation."""
    return tf.keras.layers.Dense(
        1, activation=activation, use_bias=False, kernel_initializer=tf.keras.initializers.Constant(WEIGHT), dtype=dtype
    )


def watching(tf: Any, tag: str, legacy: bool) -> Any:
    """Gradient descent that keeps the last captured gradient of a tag."""

    class Watching((tf.keras.optimizers.legacy if legacy else tf.keras.optimizers).SGD):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(RATE)
            self.told: Dict[str, int] = {}
            self.seen = tf.Variable([[0.0]], trainable=False)

        supports_captured_grads = True

        def apply_gradients(self, grads_and_vars: Any, captured_grads: Any = None, **settings: Any) -> Any:
            self.told = {name: len(gradients) for name, gradients in (captured_grads or {}).items()}
            if captured_grads:
                self.seen.assign(captured_grads[tag][0])
            return super().apply_gradients(grads_and_vars, **settings)

    return Watching()


def fitted(tf: Any, strategy: Any, layer: Callable[[], Any], optimizer: Callable[[Any], Any], value: float) -> Any:
    """The model after one step on one input."""
    with strategy.scope():
        captured = layer()
        inputs = tf.keras.Input((1,), batch_size=1)
        model = tf.keras.Model(inputs, tf.keras.layers.Lambda(lambda h: (h + 1) * (h + 1))(captured(inputs)))
        model.compile(optimizer(captured), loss=lambda _, out: out, steps_per_execution=1)
        column = np.array([[value]], np.float32)
        model.fit(tf.data.Dataset.from_tensor_slices((column, column)).batch(1, drop_remainder=True), verbose=0)
    return model


@pytest.mark.parametrize("legacy", [False, True], ids=["new", "legacy"])
@pytest.mark.parametrize("value", [3.0, -3.0])
@pytest.mark.parametrize("name", KINDS)
def test_an_optimizer_is_handed_what_was_captured(
    tf: Any, layers: Any, strategy: Any, name: str, value: float, legacy: bool
) -> None:
    """A fit hands the gradient of the output, or of what goes into the activation, to an optimizer that takes it."""
    inside = dense(tf)
    tag = KINDS[name].format(inside.name)
    model = fitted(tf, strategy, lambda: getattr(layers, name)(inside), lambda _: watching(tf, tag, legacy), value)

    output = 2 * (max(WEIGHT * value, 0.0) + 1)
    inner = output * (value > 0)
    seen_gradient = inner if name == "CaptureActivationGradients" else output
    check.equal(actual=model.optimizer.told, expected={tag: 1}, what="the tags and their numbers of tensors")
    seen = float(model.optimizer.seen.numpy()[0, 0])
    check.equal(actual=seen, expected=seen_gradient, what="the captured gradient")
    weight = float(model.get_weights()[0][0, 0])
    check.equal(actual=weight, expected=WEIGHT - RATE * inner * value, what="the weight after the update")


@pytest.mark.parametrize("name", KINDS)
def test_other_optimizers_train_as_ever(tf: Any, layers: Any, strategy: Any, name: str) -> None:
    """An optimizer that takes no captured gradients trains the layer inside."""
    model = fitted(
        tf, strategy, lambda: getattr(layers, name)(dense(tf), tag="mine"), lambda _: tf.keras.optimizers.SGD(RATE), 3.0
    )

    weight = float(model.get_weights()[0][0, 0])
    check.equal(actual=weight, expected=WEIGHT - RATE * 2 * 7.0 * 3.0, what="the weight after the update")
    check.equal(actual=model.layers[1].name, expected="mine", what="the name of a layer with a tag")


def test_a_scaling_optimizer_counts_what_a_fit_captures(tf: Any, layers: Any, strategy: Any) -> None:
    """Captured gradients in float16 shrink the factor of an ALSOptimizer though those of the weights are small."""
    als = importlib.import_module("keras.ipu.optimizers").ALSOptimizer
    settings = {"update_frequency": 1, "captured_grads_only": True, "histogram_bin_edge": 2.0**10}
    model = fitted(
        tf, strategy,
        lambda: layers.CaptureUpstreamGradients(dense(tf, None, "float16")),
        lambda _: als(tf.keras.optimizers.SGD(RATE), 256, **settings),
        2.0**-3,
    )  # fmt: skip

    # The output is 0.25 and its gradient 2.5: scaled by 256 it stays below the edge, and nothing else is counted.
    check.equal(actual=float(model.optimizer.loss_scaling_factor), expected=512, what="the factor after small ones")
    model = fitted(
        tf, strategy,
        lambda: layers.CaptureUpstreamGradients(dense(tf, None, "float16")),
        lambda _: als(tf.keras.optimizers.SGD(RATE), 256, **settings),
        2.0,
    )  # fmt: skip
    check.equal(actual=float(model.optimizer.loss_scaling_factor), expected=128, what="the factor after a large one")


def test_a_tape_hands_over_what_it_captures(tf: Any, ipu: Any, layers: Any, strategy: Any) -> None:
    """``minimize`` of an optimizer in a function hands over the gradients that its tape has captured."""
    with strategy.scope():
        layer = layers.CaptureUpstreamGradients(dense(tf), tag="mine")
        layer.build((1, 1))
        optimizer = watching(tf, "mine", legacy=True)

    @tf.function
    def step(value: Any) -> Any:
        with ipu.eager.backprop.GradientCaptureTape() as tape:
            loss = tf.reduce_sum(layer(value) ** 2)
        optimizer.minimize(loss, layer.trainable_variables, tape=tape)
        return loss

    with strategy.scope():
        strategy.run(step, args=(tf.constant([[3.0]]),))
    check.equal(actual=float(optimizer.seen.numpy()[0, 0]), expected=12.0, what="the captured gradient")


@pytest.mark.parametrize("name", KINDS)
def test_a_layer_is_made_again_from_its_configuration(tf: Any, layers: Any, name: str) -> None:
    """A copy wraps a layer of the same kind and settings, and has the same tag."""
    layer = getattr(layers, name)(dense(tf), tag="mine")
    again = type(layer).from_config(layer.get_config())

    check.equal(actual=(type(again.layer), again.tag), expected=(type(layer.layer), "mine"), what="the copy")
    check.equal(actual=again.get_config(), expected=layer.get_config(), what="the configuration of the copy")


def test_only_layers_with_activations_are_supported(tf: Any, layers: Any) -> None:
    """A layer without an activation is refused where gradients of activations are asked for, and a function always."""
    supported = layers.CaptureActivationGradients.layer_is_supported
    kinds = {"dense": dense(tf), "flatten": tf.keras.layers.Flatten()}
    expected = {"dense": True, "flatten": False}
    check.equal(
        actual={kind: supported(one) for kind, one in kinds.items()}, expected=expected, what="what is supported"
    )
    with check.raises(ValueError, match="activation", what="CaptureActivationGradients of Flatten"):
        layers.CaptureActivationGradients(kinds["flatten"])
    for name in KINDS:
        with check.raises(ValueError, match=".", what=f"{name} of a function"):
            getattr(layers, name)(tf.nn.relu)


@pytest.mark.emulator
@pytest.mark.ipus(2)
def test_replicas_capture_nothing(tf: Any, ipu: Any, layers: Any, configure: Callable[..., Any]) -> None:
    """Gradients that would have to be accumulated or exchanged are not captured, which is said."""
    configure(2)
    inside = dense(tf)
    tag = KINDS["CaptureUpstreamGradients"].format(inside.name)
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = tf.keras.Sequential([tf.keras.Input((1,)), layers.CaptureUpstreamGradients(inside)])
        model.compile(watching(tf, tag, legacy=False), loss=lambda _, out: out)
        column = np.array([[1.0], [2.0]], np.float32)
        data = tf.data.Dataset.from_tensor_slices((column, column)).batch(1, drop_remainder=True)
        with check.raises(NotImplementedError, match="one replica", what="captured gradients of two replicas"):
            model.fit(data, verbose=0)
