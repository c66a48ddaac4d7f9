"""Sequences of different lengths copied between tensors."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["sequence_slice", "sequence_slice_pack", "sequence_slice_unpack"]


def sequence_slice(dst: Any, src: Any, num_elems: Any, src_offsets: Any, dst_offsets: Any, zero_unused: bool) -> Any:
    """``dst`` with ``num_elems[i]`` rows from ``src_offsets[i]`` of ``src`` on, put at ``dst_offsets[i]`` on.

    Rows of ``dst`` that nothing is put at stay as they are, or become 0 with ``zero_unused``.
    """
    dst, src = tf.convert_to_tensor(dst), tf.convert_to_tensor(src)
    lengths, starts, ends = (tf.cast(tf.convert_to_tensor(v), tf.int32) for v in (num_elems, src_offsets, dst_offsets))
    _check(lengths, starts, ends)
    if src.shape[1:] != dst.shape[1:]:
        raise ValueError(f"`src` has rows of shape {src.shape[1:]} and `dst` of {dst.shape[1:]}: they must match.")
    rows = tf.ragged.range(starts, starts + lengths).flat_values
    places = tf.ragged.range(ends, ends + lengths).flat_values
    under = tf.zeros_like(dst) if zero_unused else dst
    return tf.tensor_scatter_nd_update(under, places[:, tf.newaxis], tf.gather(src, rows))


def sequence_slice_unpack(src: Any, num_elems: Any, src_offsets: Any, total_elements: int) -> Any:
    """One after the other ``num_elems[i]`` rows from ``src_offsets[i]`` of ``src`` on: ``total_elements`` rows."""
    src = tf.convert_to_tensor(src)
    under = tf.zeros([total_elements, *src.shape[1:]], src.dtype)
    return sequence_slice(under, src, num_elems, src_offsets, _contiguous(num_elems), False)


def sequence_slice_pack(dst: Any, src: Any, num_elems: Any, dst_offsets: Any, zero_unused: bool) -> Any:
    """``dst`` with the sequences that stand one after the other in ``src``, put at ``dst_offsets[i]`` on."""
    return sequence_slice(dst, src, num_elems, _contiguous(num_elems), dst_offsets, zero_unused)


def _contiguous(lengths: Any) -> Any:
    """Where sequences begin that stand one after the other."""
    return tf.cumsum(tf.cast(tf.convert_to_tensor(lengths), tf.int32), exclusive=True)


def _check(*offsets: Any) -> None:
    sizes = {offset.shape[0] if offset.shape.rank == 1 else None for offset in offsets}
    if len(sizes) != 1 or sizes & {0, None}:
        raise ValueError("num_elems and offsets must have matching, nonzero shapes of rank 1.")
