"""Layers that capture gradients of activations, and the optimizers that are handed them.

The loss is the square of one more than what a layer of the weight 2 makes of its input: all values are exact.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any, Callable, Dict

import pytest

from ipu_conformance import check

from .nets import PLAIN, Keras, scalars

WEIGHT, RATE = 2.0, 2.0**-10
KINDS = {"CaptureUpstreamGradients": "{}_cug", "CaptureActivationGradients": "{}_cag_activation"}
"""The classes, and the tag of what each captures in a layer without a tag of its own."""


@pytest.fixture
def layers(tf: Any, ipu: Any) -> Any:
    """The module of the layers."""
    return importlib.import_module("keras.ipu.layers")


@pytest.fixture
def inside(keras: Keras) -> Any:
    """A layer of one weight and an activation, to capture gradients of."""
    return keras.scale(WEIGHT, activation="relu")


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


@pytest.fixture
def fit(keras: Keras) -> Callable[[Any, Callable[[], Any], float], Any]:
    """Makes one step with a layer that captures, an optimizer made in the scope, and an input; the model."""

    def fitted(captured: Any, optimizer: Callable[[], Any], value: float) -> Any:
        square = keras.tf.keras.layers.Lambda(lambda h: (h + 1) * (h + 1))
        return keras.chained(replace(PLAIN, device_iterations=1), [captured, square], [value], optimizer=optimizer)

    return fitted


@pytest.mark.parametrize("legacy", [False, True], ids=["new", "legacy"])
@pytest.mark.parametrize("value", [3.0, -3.0])
@pytest.mark.parametrize("name", KINDS)
def test_an_optimizer_is_handed_what_was_captured(
    tf: Any, layers: Any, inside: Any, fit: Any, name: str, value: float, legacy: bool
) -> None:
    """A fit hands the gradient of the output, or of what goes into the activation, to an optimizer that takes it."""
    tag = KINDS[name].format(inside.name)
    model = fit(getattr(layers, name)(inside), lambda: watching(tf, tag, legacy), value)

    output = 2 * (max(WEIGHT * value, 0.0) + 1)
    inner = output * (value > 0)
    seen_gradient = inner if name == "CaptureActivationGradients" else output
    check.equal(actual=model.optimizer.told, expected={tag: 1}, what="the tags and their numbers of tensors")
    check.equal(actual=model.optimizer.seen.numpy().item(), expected=seen_gradient, what="the captured gradient")
    check.equal(actual=scalars(model), expected=[WEIGHT - RATE * inner * value], what="the weight after the update")


@pytest.mark.parametrize("name", KINDS)
def test_other_optimizers_train_as_ever(tf: Any, layers: Any, inside: Any, fit: Any, name: str) -> None:
    """An optimizer that takes no captured gradients trains the layer inside."""
    model = fit(getattr(layers, name)(inside, tag="mine"), lambda: tf.keras.optimizers.SGD(RATE), 3.0)

    expected = [WEIGHT - RATE * 2 * 7.0 * 3.0]
    check.equal(actual=scalars(model), expected=expected, what="the weight after the update")
    check.equal(actual=model.layers[0].name, expected="mine", what="the name of a layer with a tag")


@pytest.mark.parametrize(("value", "factor"), [(2.0**-3, 512), (2.0, 128)], ids=["small", "large"])
def test_a_scaling_optimizer_counts_what_a_fit_captures(
    keras: Keras, layers: Any, fit: Any, value: float, factor: int
) -> None:
    """Captured gradients in float16 shrink the factor of an ALSOptimizer though those of the weights are small.

    An output of 0.25 has a gradient of 2.5: scaled by 256 it stays below the edge, and nothing else is counted.
    """
    als = importlib.import_module("keras.ipu.optimizers").ALSOptimizer
    settings = {"update_frequency": 1, "captured_grads_only": True, "histogram_bin_edge": 2.0**10}
    captured = layers.CaptureUpstreamGradients(keras.scale(WEIGHT, dtype="float16"))
    model = fit(captured, lambda: als(keras.tf.keras.optimizers.SGD(RATE), 256, **settings), value)

    check.equal(actual=float(model.optimizer.loss_scaling_factor), expected=factor, what="the factor after the update")


def test_a_tape_hands_over_what_it_captures(tf: Any, ipu: Any, layers: Any, inside: Any, strategy: Any) -> None:
    """``minimize`` of an optimizer in a function hands over the gradients that its tape has captured."""
    with strategy.scope():
        layer = layers.CaptureUpstreamGradients(inside, tag="mine")
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
    check.equal(actual=optimizer.seen.numpy().item(), expected=12.0, what="the captured gradient")


@pytest.mark.parametrize("name", KINDS)
def test_a_layer_is_made_again_from_its_configuration(layers: Any, inside: Any, name: str) -> None:
    """A copy wraps a layer of the same kind and settings, and has the same tag."""
    layer = getattr(layers, name)(inside, tag="mine")
    again = type(layer).from_config(layer.get_config())

    check.equal(actual=(type(again.layer), again.tag), expected=(type(layer.layer), "mine"), what="the copy")
    check.equal(actual=again.get_config(), expected=layer.get_config(), what="the configuration of the copy")


def test_only_layers_with_activations_are_supported(tf: Any, layers: Any, inside: Any) -> None:
    """A layer without an activation is refused where gradients of activations are asked for, and a function always."""
    flatten = tf.keras.layers.Flatten()
    supported = [layers.CaptureActivationGradients.layer_is_supported(one) for one in (inside, flatten)]
    check.equal(actual=supported, expected=[True, False], what="whether a Dense and a Flatten layer are supported")
    with check.raises(ValueError, match="activation", what="CaptureActivationGradients of Flatten"):
        layers.CaptureActivationGradients(flatten)
    for name in KINDS:
        with check.raises(ValueError, match=".", what=f"{name} of a function"):
            getattr(layers, name)(tf.nn.relu)


@pytest.mark.emulator
@pytest.mark.ipus(2)
def test_replicas_capture_nothing(tf: Any, keras: Keras, layers: Any, inside: Any) -> None:
    """Gradients that would have to be accumulated or exchanged are not captured, which is said."""
    tag = KINDS["CaptureUpstreamGradients"].format(inside.name)
    with check.raises(NotImplementedError, match="one replica", what="captured gradients of two replicas"):
        keras.chained(
            PLAIN.with_counts(1, 1, 2), [layers.CaptureUpstreamGradients(inside)], [1.0, 2.0],
            optimizer=lambda: watching(tf, tag, legacy=False),
        )  # fmt: skip
