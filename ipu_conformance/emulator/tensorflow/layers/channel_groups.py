"""Normalisation of each sample over groups of its channels, as operations and layers share it."""

from __future__ import annotations

from typing import Any, Sequence

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.refusals import ops as refusals

EPSILON = 1.53e-5
"""The default that is added to a variance: close to the least normal number of float16."""


def normalise(
    inputs: Any, groups: int, channels_axis: int, epsilon: float, gamma: Any, beta: Any, strided: bool = True
) -> Any:
    """The normalised tensor; statistics are computed in float32 at least, and the result has the inputs' type."""
    size, rank = channels(inputs, channels_axis), inputs.shape.rank
    axis = channels_axis % rank
    wide = tf.float32 if inputs.dtype in (tf.float16, tf.bfloat16) else inputs.dtype
    order = [0, *(place for place in range(1, rank) if place != axis), axis]
    last = tf.transpose(tf.cast(inputs, wide), order)
    sizes, within = ([size // groups, groups], 2) if strided else ([groups, size // groups], 3)
    seen = tf.reshape(last, [tf.shape(last)[0], int(_size(last.shape[1:-1])), *sizes])
    made = tf.reshape(standardised(seen, [1, within], epsilon), tf.shape(last))
    if gamma is not None:
        made *= tf.cast(gamma, wide)
    if beta is not None:
        made += tf.cast(beta, wide)
    made = tf.transpose(made, [order.index(place) for place in range(rank)])
    return tf.ensure_shape(tf.cast(made, inputs.dtype), inputs.shape)


def standardised(values: Any, axes: Sequence[int], epsilon: float) -> Any:
    """The values with mean 0 and, but for ``epsilon``, variance 1 over the axes."""
    mean, variance = tf.nn.moments(values, axes, keepdims=True)
    return (values - mean) * tf.math.rsqrt(variance + epsilon)


def check_groups(groups: int, channels: int) -> None:
    """Refuse a number of groups that the channels cannot be divided into."""
    refusals.UNEVEN_GROUPS(groups=groups, channels=channels)


def channels(inputs: Any, axis: int) -> int:
    """How many channels inputs have along an axis; inputs that cannot be normalised are refused."""
    rank = inputs.shape.rank
    if rank is None or rank < 2:
        raise ValueError(
            f"Inputs of shape {inputs.shape} cannot be normalised; pass a tensor of a batch axis and at least one more."
        )
    if not -rank <= axis < rank or axis % rank == 0:
        raise ValueError(
            f"`channels_axis` is {axis} for inputs of {rank} axes; use one of them, but not the first, which is that "
            "of the batch."
        )
    if not inputs.shape[1:].is_fully_defined():
        raise ValueError(f"Inputs of shape {inputs.shape} cannot be normalised; all axes but the first must be known.")
    return int(inputs.shape[axis])


def _size(shape: Any) -> int:
    return int(shape.num_elements()) if shape.rank else 1
