"""Layers without weights: dropout, and marks that tell the compiler something and change no value."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_conformance.emulator.faults.decisions import tensorflow_ops as decide
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
        if training is None:
            training = library.module("backend").learning_phase()
        known = training if isinstance(training, (bool, int)) else tf.get_static_value(training)
        if known is None:
            return tf.cond(tf.cast(training, tf.bool), lambda: self._dropped(inputs), lambda: tf.identity(inputs))
        return self._dropped(inputs) if decide("dropout-in-training", bool(known)) else tf.identity(inputs)

    def _dropped(self, inputs: Any) -> Any:
        return dropout(inputs, self.rate, self.noise_shape, self.seed)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shape of the inputs."""
        return tf.TensorShape(input_shape)


class RecomputationCheckpoint(_Layer):
    """Marks what is kept when a pipeline stage computes its activations again."""

    def call(self, inputs: Any, **settings: Any) -> Any:
        """The inputs themselves."""
        return tf.nest.map_structure(lambda value: decide("mark", tf.identity(value)), inputs)


class AssumeEqualAcrossReplicas(library.Configured, _Layer):
    """Promises that its inputs are the same on every replica."""

    CONFIG = ("inplace",)

    def __init__(self, inplace: bool = False, **settings: Any) -> None:
        super().__init__(**settings)
        self.inplace = inplace

    def call(self, inputs: Any, **settings: Any) -> Any:
        """The inputs themselves."""
        return decide("mark", collectives.assume_equal_across_replicas(inputs, self.inplace))
