"""Layers without weights: dropout, and marks that tell the compiler something and change no value."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.keras import library
from ipu_conformance.emulator.tensorflow.ops.dropout import dropout
from ipu_conformance.emulator.tensorflow.run import collectives

_Layer: Any = library.module("engine.base_layer").Layer


class Dropout(library.Configured, _Layer):
    """Drops a share of ``rate`` in training; a ``seed`` is a pair of 32-bit integers, see ``ops.dropout``."""

    CONFIG = ("rate", "noise_shape", "seed")

    def __init__(self, rate: float = 0.5, noise_shape: Any = None, seed: Any = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.rate = rate
        self.noise_shape = noise_shape
        self.seed = seed

    def call(self, inputs: Any, training: Any = None) -> Any:
        """Inputs with some set to 0 and the others scaled up in training, and as they are otherwise."""
        training = in_training(training)
        if not isinstance(training, bool):
            return tf.cond(training, lambda: self._dropped(inputs), lambda: tf.identity(inputs))
        return self._dropped(inputs) if training else tf.identity(inputs)

    def _dropped(self, inputs: Any) -> Any:
        return dropout(inputs, self.rate, self.noise_shape, self.seed)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shape of the inputs."""
        return tf.TensorShape(input_shape)


def in_training(asked: Any) -> Any:
    """Whether a layer is trained: what is asked for, or Keras' learning phase; a tensor where only the run knows."""
    asked = library.module("backend").learning_phase() if asked is None else asked
    known = asked if isinstance(asked, (bool, int)) else tf.get_static_value(asked)
    return tf.cast(asked, tf.bool) if known is None else bool(known)


class RecomputationCheckpoint(_Layer):
    """Marks what is kept when a pipeline stage computes its activations again."""

    def call(self, inputs: Any, **settings: Any) -> Any:
        """The inputs themselves."""
        return tf.nest.map_structure(tf.identity, inputs)


class AssumeEqualAcrossReplicas(library.Configured, _Layer):
    """Promises that its inputs are the same on every replica."""

    CONFIG = ("inplace",)

    def __init__(self, inplace: bool = False, **settings: Any) -> None:
        super().__init__(**settings)
        self.inplace = inplace

    def call(self, inputs: Any, **settings: Any) -> Any:
        """The inputs themselves."""
        return collectives.assume_equal_across_replicas(inputs, self.inplace)
