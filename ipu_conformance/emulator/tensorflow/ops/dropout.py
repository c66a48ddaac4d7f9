"""Dropout that remembers its seed, not its mask."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf


def dropout(
    x: Any,
    rate: float = 0.5,
    noise_shape: Any = None,
    seed: Any = None,
    name: Optional[str] = None,
    **kwargs: Any,
) -> Any:
    """``x`` with a share of ``rate`` set to 0 and the others divided by ``1 - rate``.

    Axes where ``noise_shape`` is 1 are dropped as one. A ``seed`` is a pair of 32-bit integers, and the same pair
    drops the same elements; without one every execution draws from the device's own seed. ``ref`` in ``kwargs``
    decides how the mask is laid out on the device, which changes no value.
    """
    unknown = sorted(set(kwargs) - {"ref"})
    if unknown:
        raise TypeError(f"dropout has no argument {unknown[0]!r}.")
    x = tf.convert_to_tensor(x)
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 <= rate < 1:
        raise ValueError(f"`rate` is {rate!r}; use a number from 0 on and less than 1.")
    if not x.dtype.is_floating:
        raise ValueError(f"`x` has dtype {x.dtype.name}; dropout is for floating-point tensors.")
    if rate == 0:
        return tf.identity(x, name=name)
    shape = _mask_shape(x, noise_shape)
    with tf.name_scope(name or "dropout"):
        if seed is not None:
            pair = tf.convert_to_tensor(seed)
            if pair.shape.rank != 1 or pair.shape[0] != 2:
                raise ValueError(f"`seed` has shape {pair.shape}; use a pair of 32-bit integers.")
            noise = tf.random.stateless_uniform(shape, seed=tf.cast(pair, tf.int32))
        else:
            noise = tf.random.uniform(shape)
        # The mask has no gradient; dividing first rounds once, as the device does.
        kept = tf.stop_gradient(tf.cast(noise >= rate, x.dtype))
        return x * kept * tf.constant(1.0 / (1.0 - rate), x.dtype)


def _mask_shape(x: Any, noise_shape: Any) -> Any:
    if noise_shape is None:
        return tf.shape(x)
    wanted = [None if size is None else int(size) for size in noise_shape]
    rank = x.shape.rank
    fits = rank is not None and len(wanted) == rank
    if not fits or any(size not in (None, 1, x.shape[place]) for place, size in enumerate(wanted)):
        raise ValueError(
            f"`noise_shape` is {wanted} for a tensor of shape {x.shape}; use 1 or the tensor's own size on every axis."
        )
    actual = tf.shape(x)
    return tf.stack([actual[place] if size is None else size for place, size in enumerate(wanted)])
