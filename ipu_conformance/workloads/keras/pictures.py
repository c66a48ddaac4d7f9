"""The network for small pictures: plain Keras, the same for every approach and for the native twin."""

from __future__ import annotations

from typing import Any, List, Sequence

import tensorflow as tf

SIDE, COLOURS, CLASSES = 32, 3, 10


def layers(seed: int, *, dropout: bool = True) -> List[Any]:
    """Two blocks of two convolutions, and two dense layers, in order; the seed chooses the initial weights."""
    keras = tf.keras.layers
    numbers = iter(range(100 * seed, 100 * seed + 100))

    def initial() -> Any:
        return tf.keras.initializers.GlorotUniform(seed=next(numbers))

    def dropped(rate: float) -> List[Any]:
        return [keras.Dropout(rate)] if dropout else []

    def block(channels: int, first: str, second: str) -> List[Any]:
        return [
            keras.Conv2D(channels, 3, padding="same", activation="relu", kernel_initializer=initial(), name=first),
            keras.Conv2D(channels, 3, activation="relu", kernel_initializer=initial(), name=second),
            keras.MaxPooling2D(2),
            *dropped(0.25),
        ]

    return [
        *block(32, "conv_1", "conv_2"),
        *block(64, "conv_3", "conv_4"),
        keras.Flatten(),
        keras.Dense(512, activation="relu", kernel_initializer=initial(), name="dense_1"),
        *dropped(0.5),
        keras.Dense(CLASSES, activation="softmax", kernel_initializer=initial(), name="dense_2"),
    ]


def build(seed: int, *, dropout: bool = True) -> Any:
    """The layers as a chain."""
    return tf.keras.Sequential([tf.keras.layers.Input((SIDE, SIDE, COLOURS)), *layers(seed, dropout=dropout)])


def through(chain: Sequence[Any], values: Any, *, training: bool) -> Any:
    """Applies a chain of layers that is not a model of its own: in a graph, or in a part of one."""
    for layer in chain:
        values = layer(values, training=training) if isinstance(layer, tf.keras.layers.Dropout) else layer(values)
    return values


def loss_of(labels: Any, probabilities: Any) -> Any:
    """The mean cross entropy, as Keras computes it when it fits the chain."""
    return tf.keras.losses.SparseCategoricalCrossentropy()(labels, probabilities)
