"""Normalisation within one sample: over groups of channels, over one channel, or over all of them."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import tensorflow as tf

from ipu_conformance.emulator.faults.decisions import tensorflow_ops as decide

__all__ = ["group_norm", "instance_norm", "layer_norm"]

EPSILON = 1.53e-5
"""What is added to a variance unless the program says otherwise: the least that float16 holds in full is near."""

_v1 = tf.compat.v1


def group_norm(
    inputs: Any,
    groups: int = 2,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = EPSILON,
    param_initializers: Optional[Dict[str, Any]] = None,
    reuse: Any = None,
    variables_collections: Any = None,
    training: bool = True,
    trainable: bool = True,
    scope: Any = None,
    strided_channel_grouping: bool = True,
) -> Any:
    """Each sample with mean 0 and variance 1 in every group of channels, then scaled and moved by channel.

    With ``strided_channel_grouping`` a group holds every ``groups``-th channel, else neighbouring ones. The statistics
    are always those of the sample itself, whether ``training`` or not.
    """
    inputs = tf.convert_to_tensor(inputs)
    channels = _channels(inputs, channels_axis)
    check_groups(groups, channels)
    dtype = inputs.dtype.base_dtype
    with _v1.variable_scope(scope, "GroupNorm", [inputs], reuse=reuse):
        made: Dict[str, Any] = {
            name: _v1.get_variable(
                name,
                shape=[channels],
                dtype=dtype,
                initializer=(param_initializers or {}).get(name, start),
                trainable=decide("norm-trainable", trainable),
                collections=_collections(variables_collections, name),
            )
            for name, start, wanted in (
                ("beta", _v1.zeros_initializer(), center),
                ("gamma", _v1.ones_initializer(), scale),
            )
            if wanted
        }
    return normalise(
        inputs, groups, channels_axis, epsilon, made.get("gamma"), made.get("beta"), strided_channel_grouping
    )


def instance_norm(
    inputs: Any,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = EPSILON,
    param_initializers: Optional[Dict[str, Any]] = None,
    reuse: Any = None,
    variables_collections: Any = None,
    training: bool = True,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """Each sample with mean 0 and variance 1 in every channel, then scaled and moved by channel."""
    inputs = tf.convert_to_tensor(inputs)
    with _v1.variable_scope(scope, "InstanceNorm", [inputs], reuse=reuse) as own:
        return group_norm(
            inputs, decide("instance-groups", _channels(inputs, channels_axis)), channels_axis, center, scale, epsilon,
            param_initializers, reuse, variables_collections, training, trainable, own,
        )  # fmt: skip


def layer_norm(
    inputs: Any,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = EPSILON,
    param_initializers: Optional[Dict[str, Any]] = None,
    reuse: Any = None,
    variables_collections: Any = None,
    training: bool = True,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """Each sample with mean 0 and variance 1 over all its elements, then scaled and moved by channel."""
    inputs = tf.convert_to_tensor(inputs)
    with _v1.variable_scope(scope, "LayerNorm", [inputs], reuse=reuse) as own:
        return group_norm(
            inputs, decide("layer-groups", 1), channels_axis, center, scale, epsilon,
            param_initializers, reuse, variables_collections, training, trainable, own,
        )  # fmt: skip


def normalise(
    inputs: Any, groups: int, channels_axis: int, epsilon: float, gamma: Any, beta: Any, strided: bool = True
) -> Any:
    """The normalised tensor; statistics are computed in float32 at least, and the result has the inputs' type."""
    channels, rank = _channels(inputs, channels_axis), inputs.shape.rank
    axis = channels_axis % rank
    wide = tf.float32 if inputs.dtype in (tf.float16, tf.bfloat16) else inputs.dtype
    order = [0, *(place for place in range(1, rank) if place != axis), axis]
    last = tf.transpose(tf.cast(inputs, wide), order)
    strided = decide("strided-grouping", strided)
    sizes, within = ([channels // groups, groups], 2) if strided else ([groups, channels // groups], 3)
    seen = tf.reshape(last, [tf.shape(last)[0], int(_size(last.shape[1:-1])), *sizes])
    mean, variance = tf.nn.moments(seen, [1, within], keepdims=True)
    factor = tf.math.rsqrt(variance + decide("norm-epsilon", epsilon))
    made = tf.reshape((seen - mean) * decide("norm-factor", factor), tf.shape(last))
    if gamma is not None:
        made *= tf.cast(gamma, wide)
    if beta is not None:
        made += tf.cast(beta, wide)
    made = tf.transpose(made, [order.index(place) for place in range(rank)])
    return tf.ensure_shape(tf.cast(made, inputs.dtype), inputs.shape)


def check_groups(groups: int, channels: int) -> None:
    """Refuse a number of groups that the channels cannot be divided into."""
    if decide("groups-checked", isinstance(groups, bool) or groups < 1 or groups > channels or channels % groups):
        raise ValueError(
            f"{groups} groups were asked for {channels} channels; use a number of groups that divides the channels."
        )


def _channels(inputs: Any, axis: int) -> int:
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


def _collections(wanted: Any, name: str) -> Optional[List[Any]]:
    """The collections of a variable; None leaves the usual ones."""
    own = wanted.get(name) if isinstance(wanted, dict) else wanted
    return None if own is None else [*own, _v1.GraphKeys.GLOBAL_VARIABLES]
