"""Histograms: how many values of a tensor lie between levels."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["fixed_width_bins", "histogram", "histogram_normalize", "histogram_update"]


def fixed_width_bins(inputs: Any, n_bins: int) -> Any:
    """The ``n_bins - 1`` levels that cut the range of the inputs into bins of one width."""
    inputs = tf.convert_to_tensor(inputs)
    if isinstance(n_bins, bool) or n_bins < 2:
        raise ValueError(f"`n_bins` is {n_bins!r}; use at least 2.")
    low, high = tf.reduce_min(inputs), tf.reduce_max(inputs)
    return tf.linspace(low, high, n_bins + 1)[1:-1]


def histogram(inputs: Any, levels: Any, absolute_of_input: bool = False) -> Any:
    """How many values lie below the first level, between each two, and from the last on, as float32."""
    inputs, levels = tf.convert_to_tensor(inputs), tf.convert_to_tensor(levels)
    if levels.shape.rank != 1:
        raise ValueError(f"`levels` has shape {levels.shape}; give them as one list.")
    values = tf.reshape(inputs, [-1])
    if absolute_of_input:
        values = tf.abs(values)
    bins = tf.searchsorted(levels, tf.cast(values, levels.dtype), side="right")
    return tf.cast(tf.math.bincount(bins, minlength=tf.size(levels) + 1), tf.float32)


def histogram_update(hist: Any, inputs: Any, levels: Any, absolute_of_input: bool = False) -> Any:
    """A histogram with the counts of more values added to it."""
    return tf.convert_to_tensor(hist) + histogram(inputs, levels, absolute_of_input)


def histogram_normalize(hist: Any) -> Any:
    """A histogram whose counts are shares of all values."""
    hist = tf.convert_to_tensor(hist)
    return hist / tf.reduce_sum(hist)
