"""Normalisation layers: over groups of channels, over one channel, and stock Keras' own over chosen axes."""

from __future__ import annotations

from typing import Any, Dict, Optional

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.keras import library
from ipu_conformance.emulator.tensorflow.layers.channel_groups import EPSILON, check_groups, normalise

_Layer: Any = library.module("engine.base_layer").Layer
_LayerNormalization: Any = library.module("layers").LayerNormalization


class GroupNormalization(library.Configured, _Layer):
    """Normalises each sample over groups of channels; see ``normalization_ops.group_norm``."""

    CONFIG = ("groups", "channels_axis", "center", "scale", "epsilon", "strided_channel_grouping")

    def __init__(
        self,
        dtype: Any = tf.float32,
        groups: int = 2,
        channels_axis: int = -1,
        center: bool = True,
        scale: bool = True,
        epsilon: float = EPSILON,
        beta_initializer: Any = None,
        gamma_initializer: Any = None,
        strided_channel_grouping: bool = True,
        trainable: bool = True,
        name: Optional[str] = None,
        **settings: Any,
    ) -> None:
        super().__init__(dtype=dtype, trainable=trainable, name=name, **settings)
        self.groups = groups
        self.channels_axis = channels_axis
        self.center = center
        self.scale = scale
        self.epsilon = epsilon
        self.beta_initializer = tf.keras.initializers.get(beta_initializer or "zeros")
        self.gamma_initializer = tf.keras.initializers.get(gamma_initializer or "ones")
        self.strided_channel_grouping = strided_channel_grouping
        self.beta: Any = None
        self.gamma: Any = None

    def build(self, input_shape: Any) -> None:
        """Make a scale and an offset for every channel."""
        channels = tf.TensorShape(input_shape)[self.channels_axis]
        if channels is None:
            raise ValueError(f"Inputs of shape {input_shape} were given; the channels must be known.")
        check_groups(self._groups(channels), channels)
        if self.center:
            self.beta = self.add_weight("beta", [channels], initializer=self.beta_initializer)
        if self.scale:
            self.gamma = self.add_weight("gamma", [channels], initializer=self.gamma_initializer)
        self.built = True

    def call(self, inputs: Any, training: Any = None) -> Any:
        """The normalised inputs, in training and out of it."""
        return normalise(
            inputs,
            self._groups(int(inputs.shape[self.channels_axis])),
            self.channels_axis,
            self.epsilon,
            self.gamma,
            self.beta,
            self.strided_channel_grouping,
        )

    def _groups(self, channels: int) -> int:
        return self.groups

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shape of the inputs."""
        return tf.TensorShape(input_shape)

    def get_config(self) -> Dict[str, Any]:
        """What the layer can be made from again."""
        initializers = ("beta_initializer", "gamma_initializer")
        serialized = {name: tf.keras.initializers.serialize(getattr(self, name)) for name in initializers}
        return {**super().get_config(), **serialized}


class InstanceNormalization(GroupNormalization):
    """Normalises each channel of each sample."""

    def __init__(self, dtype: Any = tf.float32, channels_axis: int = -1, **settings: Any) -> None:
        for name in ("groups", "strided_channel_grouping"):
            if name in settings:
                raise TypeError(f"{type(self).__name__} has no `{name}`: every channel is a group of its own.")
        super().__init__(dtype=dtype, channels_axis=channels_axis, **settings)

    def _groups(self, channels: int) -> int:
        return channels

    def get_config(self) -> Dict[str, Any]:
        """What the layer can be made from again."""
        config = super().get_config()
        return {name: config[name] for name in config if name not in ("groups", "strided_channel_grouping")}


class LayerNormalization(_LayerNormalization):
    """Normalises over ``axis`` as stock Keras does."""


GroupNorm = GroupNormalization
InstanceNorm = InstanceNormalization
LayerNorm = LayerNormalization
