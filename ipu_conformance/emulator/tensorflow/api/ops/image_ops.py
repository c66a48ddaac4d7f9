"""Images made ready for the device: normalised, and padded to four channels."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

__all__ = ["normalise_image"]


def normalise_image(
    image: Any, channel_offsets: Any, channel_scales: Any, scale: float = 1, name: Optional[str] = None
) -> Any:
    """``(image * scale - offset) * scale of the channel`` for each of three channels, and a fourth of zeros.

    The channels are the last axis. Pixels of uint8 become the type of the offsets, others keep theirs.
    """
    image = tf.convert_to_tensor(image)
    if image.dtype not in (tf.uint8, tf.float16, tf.float32):
        raise ValueError(f"`image` has dtype {image.dtype.name}; use uint8, float16 or float32.")
    if image.shape.rank is None or image.shape.rank < 1 or image.shape[-1] != 3:
        raise ValueError(f"`image` has shape {image.shape}; its last axis must hold 3 channels.")
    wanted = None if image.dtype == tf.uint8 else image.dtype
    offsets, scales = tf.convert_to_tensor(channel_offsets, wanted), tf.convert_to_tensor(channel_scales, wanted)
    for what, value in (("channel_offsets", offsets), ("channel_scales", scales)):
        if value.shape.as_list() != [3]:
            raise ValueError(f"`{what}` has shape {value.shape}; give one number for each of the 3 channels.")
    if not offsets.dtype.is_floating or scales.dtype != offsets.dtype:
        raise ValueError(
            f"`channel_offsets` and `channel_scales` have dtypes {offsets.dtype.name} and {scales.dtype.name}; both "
            "must be float16 or both float32."
        )
    with tf.name_scope(name or "normalise_image"):
        pixels = tf.cast(image, offsets.dtype) * tf.cast(scale, offsets.dtype)
        made = (pixels - offsets) * scales
        return tf.pad(made, [[0, 0]] * (image.shape.rank - 1) + [[0, 1]])
