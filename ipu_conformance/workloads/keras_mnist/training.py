"""A run of the workload: a plain Keras network on digits, the same for IPUs and for the native twin."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf

from ipu_conformance.workloads.keras.training import Job, Result, fit, job_for, unwatched
from ipu_conformance.workloads.keras_mnist import Settings

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


def job_of(settings: Settings) -> Job:
    """The settings in Keras' terms."""
    return job_for(settings, build, steps=settings.steps_per_epoch)


def train(
    settings: Settings,
    *,
    native: bool,
    progress: bool = False,
    say: Callable[[str], None] = lambda line: None,
    watch: Callable[[Any], None] = unwatched,
) -> Result:
    """Train a new network; with ``native`` no IPU API is touched. ``watch`` sees the model, trained and tested."""
    return fit(job_of(settings), native=native, progress=progress, say=say, watch=watch)
