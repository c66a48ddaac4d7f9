"""Activations, parallel convolutions, and losses and decoders of connectionist temporal classification."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Optional

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.ops.ctc import (
    ctc_beam_search_decoder,
    ctc_beam_search_decoder_with_log_probs,
    ctc_loss_v2,
    ctc_loss_with_log_probs,
)

__all__ = [
    "ctc_beam_search_decoder",
    "ctc_beam_search_decoder_with_log_probs",
    "ctc_loss_v2",
    "ctc_loss_with_log_probs",
    "gelu",
    "hard_sigmoid",
    "multi_conv",
    "nce_loss",
    "sampled_softmax_loss",
    "softmax",
    "swish",
]


def gelu(x: Any, approximate: bool = True, name: Optional[str] = None) -> Any:
    """``x`` times the probability that a normal variable is below it, by its approximation with tanh unless exact."""
    return tf.nn.gelu(tf.convert_to_tensor(x), approximate=approximate, name=name)


def swish(x: Any, name: Optional[str] = None) -> Any:
    """``x`` times its sigmoid."""
    x = tf.convert_to_tensor(x)
    return tf.multiply(x, tf.sigmoid(x), name=name)


def hard_sigmoid(x: Any, name: Optional[str] = None) -> Any:
    """``0.2 x + 0.5``, and no less than 0 nor more than 1."""
    x = tf.convert_to_tensor(x)
    return tf.clip_by_value(0.2 * x + 0.5, 0.0, 1.0, name=name)


def softmax(x: Any, stable: bool = False, name: Optional[str] = None) -> Any:
    """The exponentials over their sum along the last axis; those of differences to the largest where ``stable``."""
    x = tf.convert_to_tensor(x)
    if stable:
        return tf.nn.softmax(x, name=name)
    power = tf.exp(x)
    return tf.divide(power, tf.reduce_sum(power, axis=-1, keepdims=True), name=name)


def multi_conv(func: Optional[Callable[..., Any]] = None, options: Optional[Dict[str, str]] = None) -> Any:
    """A function that computes what ``func`` does; its independent convolutions share the tiles of the device.

    Without ``func`` the result is a decorator. ``options`` are those of the vendor's library, as text.
    """
    if options is not None and not isinstance(options, dict):
        raise TypeError(f"Multi_conv op `options` is {options!r}; pass a dictionary of names and values.")
    if func is None:
        return functools.partial(multi_conv, options=options)
    if not callable(func):
        raise TypeError(f"`func` is {func!r}; pass a function.")

    @functools.wraps(func)
    def convolve(*args: Any) -> Any:
        with tf.name_scope("multi_conv"):
            return func(*(tf.nest.map_structure(tf.convert_to_tensor, value) for value in args))

    return convolve


def nce_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Any = None,
    name: str = "nce_loss",
) -> Any:
    """The loss of telling true classes from drawn ones; drawn classes that are true stay."""
    return tf.nn.nce_loss(
        weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values,
        remove_accidental_hits=False, name=name,
    )  # fmt: skip


def sampled_softmax_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Any = None,
    name: str = "sampled_softmax_loss",
    seed: Optional[int] = None,
) -> Any:
    """The softmax loss over true and drawn classes; drawn classes that are true stay."""
    return tf.nn.sampled_softmax_loss(
        weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values,
        remove_accidental_hits=False, seed=seed, name=name,
    )  # fmt: skip
