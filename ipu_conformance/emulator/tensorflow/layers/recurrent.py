"""Recurrent layers with the weights and the interface of stock Keras, for what the device's operations can do."""

from __future__ import annotations

from typing import Any, Dict, Optional

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.keras import library

_layers: Any = library.module("layers")

ACTIVATIONS = ("tanh", "relu", "softmax", "sigmoid", "hard_sigmoid")
REFUSED: Dict[str, Any] = {
    "recurrent_dropout": 0.0,
    "unroll": False,
    "go_backwards": False,
    "kernel_regularizer": None,
    "recurrent_regularizer": None,
    "bias_regularizer": None,
    "activity_regularizer": None,
    "kernel_constraint": None,
    "recurrent_constraint": None,
    "bias_constraint": None,
}
"""Settings of stock Keras that the device has no way to follow, each with the value that may be given."""


def _check(name: str, settings: Dict[str, Any]) -> None:
    for setting, allowed in REFUSED.items():
        given = settings.get(setting, allowed)
        if given != allowed and given is not None:
            raise ValueError(f"{name} does not support `{setting}`, but {given!r} was given; leave it out.")
    if settings.get("use_bias", True) is not True:
        raise ValueError(f"{name} always has a bias, but `use_bias` is {settings['use_bias']!r}; leave it out.")
    for setting in ("activation", "recurrent_activation"):
        given = settings.get(setting, "tanh")
        word = given if isinstance(given, str) else getattr(given, "__name__", repr(given))
        if word not in ACTIVATIONS:
            raise ValueError(f"{name} does not support the activation {word!r}; use one of {', '.join(ACTIVATIONS)}.")


class _Extended(library.Configured):
    """What the vendor's layers have above stock Keras' own; how partial sums are held is the device's affair."""

    CONFIG = ("seed", "dropout_seed", "options", "options_bwd")

    def __init__(
        self, units: int, partials_dtype: Any = tf.float32, seed: Optional[int] = None, dropout_seed: Any = None,
        options: Optional[Dict[str, str]] = None, options_bwd: Optional[Dict[str, str]] = None, **settings: Any,
    ) -> None:  # fmt: skip
        _check(type(self).__name__, settings)
        super().__init__(units, **settings)  # type: ignore[call-arg]
        self.partials_dtype = tf.as_dtype(partials_dtype)
        self.seed, self.dropout_seed = seed, dropout_seed
        self.options, self.options_bwd = options or {}, options_bwd or {}

    def get_config(self) -> Dict[str, Any]:
        """What the layer can be made from again."""
        return {**super().get_config(), "partials_dtype": self.partials_dtype.name}


class PopnnLSTM(_Extended, _layers.LSTM):
    """Long short-term memory over a batch of sequences."""


class PopnnGRU(_Extended, _layers.GRU):
    """Gated recurrent unit over a batch of sequences; by default the reset gate acts before the product."""

    def __init__(
        self, units: int, partials_dtype: Any = tf.float32, seed: Optional[int] = None, dropout_seed: Any = None,
        options: Optional[Dict[str, str]] = None, options_bwd: Optional[Dict[str, str]] = None,
        reset_after: bool = False, **settings: Any,
    ) -> None:  # fmt: skip
        super().__init__(
            units, partials_dtype, seed, dropout_seed, options, options_bwd, reset_after=reset_after, **settings
        )


LSTM = PopnnLSTM
GRU = PopnnGRU
