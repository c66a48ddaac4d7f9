"""The suite's nets as Keras models, and the metrics that show what a model computes for a micro-batch."""

from __future__ import annotations

import functools
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Callable, ContextManager, Dict, Mapping, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from ipu_conformance.frameworks import orient
from ipu_conformance.nets import INPUT, Layer, Net
from ipu_conformance.run import Array, RunConfig, Weights

LOSSES, LOGITS = "losses", "logits"
Stage = Callable[[int], ContextManager[Any]]
"""The vendor's scope of a pipeline stage."""
AXES = {
    **dict.fromkeys(("linear", "lstm", "multi_head_attention"), (1, 0)),
    **dict.fromkeys(("conv", "conv_transpose"), (2, 3, 1, 0)),
}
"""Keras keeps kernels as [in, out] and [height, width, in, out], those of transposed convolutions turned round."""
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


class TiedScores(tf.keras.layers.Layer):
    """The products with the rows of an embedding's table."""

    def __init__(self, shared: Any, **settings: Any) -> None:
        super().__init__(**settings)
        self.shared = shared

    def call(self, inputs: Any) -> Any:
        """A score for each row."""
        return tf.matmul(inputs, self.shared, transpose_b=True)


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
    """The loss of each micro-batch in the last batch: the mean, or the sum, over its samples."""

    def __init__(self, name: str, shape: Tuple[int, ...], reduction: str) -> None:
        super().__init__(name, shape)
        self._reduce = getattr(tf, f"reduce_{reduction}")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Keep this batch's instead of the one before."""
        labels = tf.cast(tf.reshape(y_true, [-1]), tf.int32)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.reshape(y_pred, [-1, y_pred.shape[-1]]))
        reduced = self._reduce(tf.reshape(each, [self.last.shape[0], -1]), axis=1)
        self.last.assign(tf.cast(reduced, tf.float32))


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
        """A weight's value in the net's orientation; attention keeps its heads on an axis of their own."""
        like = orient(self.net, name, np.empty(self._shapes[name]), AXES)
        return orient(self.net, name, np.reshape(value, like.shape), AXES, back=True)

    @property
    def _shapes(self) -> Mapping[str, Tuple[int, ...]]:
        return {row.name: row.shape for row in (*self.net.weights, *self.net.statistics)}

    def weights(self) -> Weights:
        """The trained weights."""
        return self.read(self.trained)

    def statistics(self) -> Optional[Weights]:
        """Batch norm's running statistics, None for a net that has none."""
        return self.read(self.running) or None


def keras_net(net: Net, config: RunConfig, stage: Optional[Stage] = None, dtypes: Optional[Dtypes] = None) -> KerasNet:
    """The net as a model with its initial weights; each layer is called in the scope of its stage, if there is one."""
    inputs = tf.keras.Input(image_axes(net.input_shape), dtype="int32" if net.tokens else config.dtype)
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
        variable.assign(orient(net, name, start[name], AXES).reshape(variable.shape))
    return KerasNet(net, model, held, statistics)


def metrics(net: Net, config: RunConfig, micro_batches: int = 1) -> Tuple[Any, ...]:
    """The metrics that show the losses and logits of a batch of so many micro-batches."""
    samples = micro_batches * config.micro_batch
    shown = LastLosses(LOSSES, (micro_batches,), dict(net.loss_settings)["reduction"])
    return shown, LastLogits(LOGITS, (samples, *net.label_shape, net.classes))


def image_axes(shape: Tuple[int, ...]) -> Tuple[int, ...]:
    """The shape of a sample as Keras takes it: channels come last."""
    return (*shape[1:], shape[0]) if len(shape) == 3 else shape


def images(net: Net, inputs: Array) -> Array:
    """Samples as Keras takes them."""
    return np.moveaxis(inputs, -3, -1) if len(net.input_shape) == 3 else inputs


def classes_first(net: Net, logits: Array) -> Array:
    """Logits as the net has them: a class for each pixel comes before the pixels."""
    return np.moveaxis(logits, -1, -1 - len(net.label_shape))


EMPTY = "zeros"
"""What weights are before they get their initial values: nothing is drawn that nobody reads."""
_WEIGHTS: Mapping[str, Callable[[Any], Sequence[Any]]] = {
    "linear": lambda made: (made.kernel, made.bias),
    "conv": lambda made: (made.kernel, made.bias),
    "conv_transpose": lambda made: (made.kernel, made.bias),
    "batch_norm": lambda made: (made.gamma, made.beta),
    "layer_norm": lambda made: (made.gamma, made.beta),
    "embedding": lambda made: (made.embeddings,),
    "matmul": lambda made: (made.shared,),
    "lstm": lambda made: (made.cell.kernel, made.cell.recurrent_kernel, made.cell.bias),
    "multi_head_attention": lambda made: [
        dense.kernel for dense in (made._query_dense, made._key_dense, made._value_dense, made._output_dense)
    ],
}
"""The variables of a Keras layer in the order of the net's weights."""


def _applied(layer: Layer, net: Net, value: Any, dtype: str, held: Dict[str, Any], statistics: Dict[str, Any]) -> Any:
    common = {"name": layer.name, "dtype": dtype}
    if layer.op == "flatten":
        value = tf.keras.layers.Permute((3, 1, 2), name=f"{layer.name}_order", dtype=dtype)(value)
    elif layer.op == "conv" and layer.attributes["padding"] and layer.attributes.get("stride", 1) > 1:
        # Keras' own padding would depend on the size of the image.
        padding = tf.keras.layers.ZeroPadding2D(layer.attributes["padding"], name=f"{layer.name}_border", dtype=dtype)
        value = padding(value)
    made = keras_layer(layer, net, held, common, value)
    value = made(value, value) if layer.op == "multi_head_attention" else made(value)
    if layer.op == "batch_norm":
        statistics[f"{layer.name}.running_mean"] = made.moving_mean
        statistics[f"{layer.name}.running_var"] = made.moving_variance
    if layer.weights:
        held.update(zip(layer.weights, _WEIGHTS[layer.op](made)))
    return value


def keras_layer(layer: Layer, net: Net, held: Mapping[str, Any], common: Mapping[str, Any], value: Any = None) -> Any:
    """Keras' layer with ``common`` settings; one whose weight is held already shares it."""
    layers, settings = tf.keras.layers, layer.attributes
    shapes = {weight.name: weight.shape for weight in net.weights}
    own = shapes.get(layer.weights[0], ()) if layer.weights else ()
    if layer.op == "linear":
        if layer.weights[0] in held:
            return TiedDense(held[layer.weights[0]], **common)
        return layers.Dense(own[0], kernel_initializer=EMPTY, **common)
    if layer.op == "conv":
        return _convolution(layer, own, common)
    if layer.op == "mean":
        return (layers.GlobalAveragePooling2D if settings["axis"] == (2, 3) else layers.GlobalAveragePooling1D)(
            **common
        )
    if layer.op == "interpolate_nearest":
        return layers.UpSampling2D(
            [large // small for large, small in zip(settings["size"], value.shape[1:])], **common
        )
    simple: Mapping[str, Callable[[], Any]] = {
        "relu": lambda: layers.Activation("relu", **common),
        "tanh": lambda: layers.Activation("tanh", **common),
        "gelu_tanh": lambda: layers.Activation(functools.partial(tf.nn.gelu, approximate=True), **common),
        "max_pool": lambda: layers.MaxPooling2D(settings["kernel"], settings["stride"], **common),
        "avg_pool": lambda: layers.AveragePooling2D(settings["kernel"], settings["stride"], **common),
        "flatten": lambda: layers.Flatten(**common),
        "add": lambda: layers.Add(**common),
        # Channels come last.
        "concat": lambda: layers.Concatenate(-1, **common),
        "dropout": lambda: layers.Dropout(settings["rate"], **common),
        # Keras' momentum is the share of the old value.
        "batch_norm": lambda: layers.BatchNormalization(
            momentum=1 - settings["momentum"], epsilon=settings["epsilon"], **common
        ),
        "layer_norm": lambda: layers.LayerNormalization(epsilon=settings["epsilon"], **common),
        "conv_transpose": lambda: layers.Conv2DTranspose(
            own[1], own[2:], strides=settings["stride"], kernel_initializer=EMPTY, **common
        ),
        "embedding": lambda: layers.Embedding(*own, embeddings_initializer=EMPTY, **common),
        "matmul": lambda: TiedScores(held[layer.weights[0]], **common),
        "lstm": lambda: layers.LSTM(settings["units"], kernel_initializer=EMPTY, recurrent_initializer=EMPTY, **common),
        "multi_head_attention": lambda: layers.MultiHeadAttention(
            settings["heads"],
            settings["features"] // settings["heads"],
            use_bias=False,
            kernel_initializer=EMPTY,
            **common,
        ),
    }
    return simple[layer.op]()


def _convolution(layer: Layer, shape: Tuple[int, ...], common: Mapping[str, Any]) -> Any:
    settings = layer.attributes
    outputs, _, *kernel = shape
    # With this padding and no stride the size stays, as Keras' word for it says.
    assert kernel == [2 * settings["padding"] + 1] * 2
    stride = settings.get("stride", 1)
    padding = "same" if stride == 1 else "valid"
    biased = len(layer.weights) > 1
    return tf.keras.layers.Conv2D(
        outputs, kernel, stride, padding=padding, use_bias=biased, kernel_initializer=EMPTY, **common
    )
