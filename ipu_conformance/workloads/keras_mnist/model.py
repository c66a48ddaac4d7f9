"""The network: plain Keras, the same for an IPU and for the native twin."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

SIDE = 28
HIDDEN, CLASSES = 128, 10


def build(seed: int) -> Any:
    """Pixels in a row, a hidden layer with ReLU and the probabilities of the digits; the seed chooses the weights."""
    layers = tf.keras.layers
    first, second = (tf.keras.initializers.GlorotUniform(seed=2 * seed + number) for number in range(2))
    return tf.keras.Sequential(
        [
            layers.Input((SIDE, SIDE, 1)),
            layers.Flatten(),
            layers.Dense(HIDDEN, activation="relu", kernel_initializer=first),
            layers.Dense(CLASSES, activation="softmax", kernel_initializer=second),
        ]
    )
