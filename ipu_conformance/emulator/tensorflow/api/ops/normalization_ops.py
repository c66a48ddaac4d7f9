"""Normalisation within one sample: over groups of channels, over one channel, or over all of them."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.layers import channel_groups as _channel_groups

__all__ = ["group_norm", "instance_norm", "layer_norm"]

_v1 = tf.compat.v1


def group_norm(
    inputs: Any,
    groups: int = 2,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = _channel_groups.EPSILON,
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
    channels = _channel_groups.channels(inputs, channels_axis)
    _channel_groups.check_groups(groups, channels)
    dtype = inputs.dtype.base_dtype
    with _v1.variable_scope(scope, "GroupNorm", [inputs], reuse=reuse):
        weights: Dict[str, Any] = {
            name: _v1.get_variable(
                name,
                shape=[channels],
                dtype=dtype,
                initializer=(param_initializers or {}).get(name, start),
                trainable=trainable,
                collections=_collections(variables_collections, name),
            )
            for name, start, wanted in (
                ("beta", _v1.zeros_initializer(), center),
                ("gamma", _v1.ones_initializer(), scale),
            )
            if wanted
        }
    return _channel_groups.normalise(
        inputs, groups, channels_axis, epsilon, weights.get("gamma"), weights.get("beta"), strided_channel_grouping
    )


def _norm(name: str, default_scope: str, groups: Callable[[Any, int], int], doc: str) -> Callable[..., Any]:
    """A normalisation whose number of groups follows from the inputs and the axis of their channels."""

    def norm(
        inputs: Any,
        channels_axis: int = -1,
        center: bool = True,
        scale: bool = True,
        epsilon: float = _channel_groups.EPSILON,
        param_initializers: Optional[Dict[str, Any]] = None,
        reuse: Any = None,
        variables_collections: Any = None,
        training: bool = True,
        trainable: bool = True,
        scope: Any = None,
    ) -> Any:
        inputs = tf.convert_to_tensor(inputs)
        with _v1.variable_scope(scope, default_scope, [inputs], reuse=reuse) as own:
            return group_norm(
                inputs, groups(inputs, channels_axis), channels_axis, center, scale, epsilon,
                param_initializers, reuse, variables_collections, training, trainable, own,
            )  # fmt: skip

    norm.__name__ = norm.__qualname__ = name
    norm.__doc__ = doc
    return norm


instance_norm = _norm(
    "instance_norm",
    "InstanceNorm",
    _channel_groups.channels,
    "Each sample with mean 0 and variance 1 in every channel, then scaled and moved by channel.",
)
layer_norm = _norm(
    "layer_norm",
    "LayerNorm",
    lambda inputs, axis: 1,
    "Each sample with mean 0 and variance 1 over all its elements, then scaled and moved by channel.",
)


def _collections(wanted: Any, name: str) -> Optional[List[Any]]:
    """The collections of a variable; None leaves the usual ones."""
    own = wanted.get(name) if isinstance(wanted, dict) else wanted
    return None if own is None else [*own, _v1.GraphKeys.GLOBAL_VARIABLES]
