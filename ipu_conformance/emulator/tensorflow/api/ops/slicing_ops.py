"""Sequences of different lengths copied between dense tensors and padded ones."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["sequence_slice", "sequence_slice_pack", "sequence_slice_unpack"]


def sequence_slice(
    dst: Any, src: Any, num_elems: Any, src_offsets: Any, dst_offsets: Any, zero_unused: bool = False
) -> Any:
    """``dst`` with ``num_elems[i]`` rows from ``src_offsets[i]`` of ``src`` on, put at ``dst_offsets[i]`` on.

    Rows of ``dst`` that nothing is put at stay as they are, or become 0 with ``zero_unused``.
    """
    dst, src = tf.convert_to_tensor(dst), tf.convert_to_tensor(src)
    lengths, starts, ends = (tf.cast(tf.convert_to_tensor(v), tf.int32) for v in (num_elems, src_offsets, dst_offsets))
    rows = tf.ragged.range(starts, starts + lengths).flat_values
    places = tf.ragged.range(ends, ends + lengths).flat_values
    under = tf.zeros_like(dst) if zero_unused else dst
    return tf.tensor_scatter_nd_update(under, places[:, tf.newaxis], tf.gather(src, rows))


def sequence_slice_unpack(
    dst: Any, src: Any, num_elems: Any, src_offsets: Any, zero_unused: bool = False, total_elements: Any = None
) -> Any:
    """``dst`` [sequences, longest, ...] with sequence i from row ``src_offsets[i]`` of the dense ``src`` on."""
    dst = tf.convert_to_tensor(dst)
    flat = tf.reshape(dst, tf.concat([[-1], tf.shape(dst)[2:]], 0))
    made = sequence_slice(flat, src, num_elems, src_offsets, _beginnings(dst), zero_unused)
    return tf.reshape(made, tf.shape(dst))


def sequence_slice_pack(dst: Any, src: Any, num_elems: Any, dst_offsets: Any, zero_unused: bool = False) -> Any:
    """The dense ``dst`` with sequence i of ``src`` [sequences, longest, ...] from row ``dst_offsets[i]`` on."""
    src = tf.convert_to_tensor(src)
    flat = tf.reshape(src, tf.concat([[-1], tf.shape(src)[2:]], 0))
    return sequence_slice(dst, flat, num_elems, _beginnings(src), dst_offsets, zero_unused)


def _beginnings(padded: Any) -> Any:
    """The first row of every sequence when a padded tensor is seen as one list of rows."""
    shape = tf.shape(padded)
    return tf.range(shape[0]) * shape[1]
