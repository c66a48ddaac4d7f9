"""The suite's nets as Keras models, and the metrics that show what a model computes for a micro-batch."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Callable, ContextManager, Dict, Mapping, Optional, Tuple

import numpy as np
import tensorflow as tf

from ipu_conformance.frameworks import orient
from ipu_conformance.nets import INPUT, Layer, Net
from ipu_conformance.run import Array, RunConfig, Weights

LOSSES, LOGITS = "losses", "logits"
Stage = Callable[[int], ContextManager[Any]]
"""The vendor's scope of a pipeline stage."""
AXES = {"linear": (1, 0), "conv": (2, 3, 1, 0)}
"""Keras keeps kernels as [in, out] and [height, width, in, out]."""
Dtypes = Mapping[str, str]
"""The dtypes of layers that differ from the configuration's."""


class TiedDense(tf.keras.layers.Dense):
    """A dense layer with another one's kernel and a bias of its own."""

    def __init__(self, shared: Any, **settings: Any) -> None:
        super().__init__(int(shared.shape[-1]), **settings)
        self.shared = shared

    def build(self, input_shape: Any) -> None:
        """Make the bias; the kernel is there already."""
        self.kernel = self.shared
        self.bias = self.add_weight("bias", shape=[self.units], initializer="zeros", trainable=True)
        self.built = True


class _Last(tf.keras.metrics.Metric):
    """What the last batch gave, instead of a mean over batches."""

    def __init__(self, name: str, shape: Tuple[int, ...]) -> None:
        super().__init__(name=name, dtype="float32")
        self.last = self.add_weight("last", shape=shape, initializer="zeros")

    def result(self) -> Any:
        """What was kept."""
        return tf.identity(self.last)

    def reset_state(self) -> None:
        """Forget it."""
        self.last.assign(tf.zeros_like(self.last))


class LastLosses(_Last):
    """The mean loss of each micro-batch in the last batch."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Keep this batch's instead of the one before."""
        labels = tf.cast(tf.reshape(y_true, [-1]), tf.int32)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, y_pred)
        mean = tf.reduce_mean(tf.reshape(each, [self.last.shape[0], -1]), axis=1)
        self.last.assign(tf.cast(mean, tf.float32))


class LastLogits(_Last):
    """The model's output for the last batch."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Keep this batch's instead of the one before."""
        self.last.assign(tf.cast(y_pred, tf.float32))


@dataclass(frozen=True)
class KerasNet:
    """A net as a model, with the variables that hold its weights and running statistics by their names."""

    net: Net
    model: Any
    trained: Mapping[str, Any]
    running: Mapping[str, Any]

    def read(self, variables: Mapping[str, Any]) -> Weights:
        """Float64 copies of variables by the net's names, in the net's orientation."""
        return {name: self.oriented(name, variable.numpy()) for name, variable in variables.items()}

    def oriented(self, name: str, value: Any) -> Array:
        """A weight's value in the net's orientation."""
        return orient(self.net, name, value, AXES, back=True)

    def weights(self) -> Weights:
        """The trained weights."""
        return self.read(self.trained)

    def statistics(self) -> Optional[Weights]:
        """Batch norm's running statistics, None for a net that has none."""
        return self.read(self.running) or None


def keras_net(net: Net, config: RunConfig, stage: Optional[Stage] = None, dtypes: Optional[Dtypes] = None) -> KerasNet:
    """The net as a model with its initial weights; each layer is called in the scope of its stage, if there is one."""
    inputs = tf.keras.Input(image_axes(net.input_shape), dtype=config.dtype)
    values: Dict[str, Any] = {INPUT: inputs}
    held: Dict[str, Any] = {}
    statistics: Dict[str, Any] = {}
    for number, layer in enumerate(net.layers):
        with nullcontext() if stage is None else stage(config.stages[number]):
            read = [values[name] for name in layer.inputs]
            dtype = (dtypes or {}).get(layer.name, config.dtype)
            values[layer.name] = _applied(layer, net, read if len(read) > 1 else read[0], dtype, held, statistics)
    model = tf.keras.Model(inputs, values[net.layers[-1].name])
    start = net.initial_weights(config.seed)
    for name, variable in held.items():
        variable.assign(orient(net, name, start[name], AXES))
    return KerasNet(net, model, held, statistics)


def metrics(net: Net, config: RunConfig, micro_batches: int = 1) -> Tuple[Any, ...]:
    """The metrics that show the losses and logits of a batch of so many micro-batches."""
    samples = micro_batches * config.micro_batch
    return LastLosses(LOSSES, (micro_batches,)), LastLogits(LOGITS, (samples, net.classes))


def image_axes(shape: Tuple[int, ...]) -> Tuple[int, ...]:
    """The shape of a sample as Keras takes it: channels come last."""
    return shape if len(shape) == 1 else (*shape[1:], shape[0])


def images(net: Net, inputs: Array) -> Array:
    """Samples as Keras takes them."""
    return inputs if len(net.input_shape) == 1 else np.moveaxis(inputs, -3, -1)


def _applied(layer: Layer, net: Net, value: Any, dtype: str, held: Dict[str, Any], statistics: Dict[str, Any]) -> Any:
    common = {"name": layer.name, "dtype": dtype}
    if layer.op == "flatten":
        value = tf.keras.layers.Permute((3, 1, 2), name=f"{layer.name}_order", dtype=dtype)(value)
    made = keras_layer(layer, net, held, common)
    value = made(value)
    if layer.op == "batch_norm":
        held.update(zip(layer.weights, (made.gamma, made.beta)))
        statistics[f"{layer.name}.running_mean"] = made.moving_mean
        statistics[f"{layer.name}.running_var"] = made.moving_variance
    elif layer.weights:
        held.update(zip(layer.weights, (made.kernel, made.bias)))
    return value


def keras_layer(layer: Layer, net: Net, held: Mapping[str, Any], common: Mapping[str, Any]) -> Any:
    """Keras' layer with ``common`` settings; one whose weight is held already shares it."""
    layers, settings = tf.keras.layers, layer.attributes
    shapes = {weight.name: weight.shape for weight in net.weights}
    if layer.op == "linear":
        if layer.weights[0] in held:
            return TiedDense(held[layer.weights[0]], **common)
        return layers.Dense(shapes[layer.weights[0]][0], **common)
    if layer.op == "conv":
        outputs, _, *kernel = shapes[layer.weights[0]]
        # With this padding the size stays, as Keras' word for it says.
        assert kernel == [2 * settings["padding"] + 1] * 2
        return layers.Conv2D(outputs, kernel, padding="same", use_bias=len(layer.weights) > 1, **common)
    if layer.op == "batch_norm":
        # Keras' momentum is the share of the old value.
        return layers.BatchNormalization(momentum=1 - settings["momentum"], epsilon=settings["epsilon"], **common)
    simple: Mapping[str, Callable[[], Any]] = {
        "relu": lambda: layers.Activation("relu", **common),
        "tanh": lambda: layers.Activation("tanh", **common),
        "max_pool": lambda: layers.MaxPooling2D(settings["kernel"], settings["stride"], **common),
        "avg_pool": lambda: layers.AveragePooling2D(settings["kernel"], settings["stride"], **common),
        "flatten": lambda: layers.Flatten(**common),
        "add": lambda: layers.Add(**common),
        "dropout": lambda: layers.Dropout(settings["rate"], **common),
    }
    return simple[layer.op]()
