"""Connectionist temporal classification: its loss, and decoding by a beam search over label sequences."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import tensorflow as tf


def ctc_loss_v2(
    labels: Any,
    logits: Any,
    label_length: Any,
    logit_length: Any,
    blank_index: int,
    out_dtype: Any = None,
    name: Optional[str] = None,
) -> Any:
    """Minus the log probability of each row of ``labels`` [batch, longest], summed over its alignments.

    ``logits`` are [time, batch, classes]; their softmax is taken here.
    """
    return _loss(labels, logits, label_length, logit_length, blank_index, out_dtype, name, normalised=False)


def ctc_loss_with_log_probs(
    labels: Any,
    data: Any,
    label_length: Any,
    data_length: Any,
    blank_index: int,
    out_dtype: Any = None,
    name: Optional[str] = None,
) -> Any:
    """As ``ctc_loss_v2`` of values that are logarithms of probabilities already."""
    return _loss(labels, data, label_length, data_length, blank_index, out_dtype, name, normalised=True)


def _loss(
    labels: Any, data: Any, label_length: Any, length: Any, blank: int, out: Any, name: Optional[str], normalised: bool
) -> Any:
    data = tf.convert_to_tensor(data)
    blank = _blank(data, blank)
    out = tf.as_dtype(data.dtype if out is None else out)
    wide = tf.cast(data, tf.float32)
    label_length, length = (tf.cast(tf.convert_to_tensor(value), tf.int32) for value in (label_length, length))
    with tf.name_scope(name or "ctc_loss"):
        loss = tf.nn.ctc_loss(
            tf.cast(labels, tf.int32), wide, label_length, length, logits_time_major=True, blank_index=blank
        )  # fmt: skip
        if normalised:
            # The stock loss takes a softmax, which divides every step's probabilities by their sum: undo that.
            sums = tf.transpose(tf.reduce_logsumexp(wide, axis=2))
            counted = tf.sequence_mask(length, tf.shape(sums)[1], sums.dtype)
            loss -= tf.reduce_sum(sums * counted, axis=1)
        return tf.cast(loss, out)


def ctc_beam_search_decoder(
    logits: Any,
    logits_lengths: Any,
    beam_width: int = 100,
    top_paths: int = 1,
    blank_index: int = -1,
    name: Optional[str] = None,
) -> Tuple[Any, Any, Any]:
    """The most probable label sequences of ``logits`` [time, batch, classes].

    The results are minus their log probabilities [batch, top_paths], their lengths, and the labels [batch, top_paths,
    time], filled up with blanks.
    """
    logits = tf.convert_to_tensor(logits)
    classes, steps = logits.shape[2], logits.shape[0]
    blank = _blank(logits, blank_index)
    if beam_width < 1 or not 1 <= top_paths <= beam_width:
        raise ValueError(
            f"{top_paths} paths were asked for of a beam of {beam_width}; use at least 1 and no more than the beam."
        )
    # The stock decoder has its blank last: the classes above ours move down by one.
    order = [place for place in range(classes) if place != blank] + [blank]
    with tf.name_scope(name or "ctc_beam_search_decoder"):
        lengths = tf.cast(tf.convert_to_tensor(logits_lengths), tf.int32)
        moved = tf.gather(tf.cast(logits, tf.float32), order, axis=2)
        paths, scores = tf.nn.ctc_beam_search_decoder(moved, lengths, beam_width, top_paths)
        size = [tf.shape(logits)[1], tf.shape(logits)[0] if steps is None else steps]
        dense = [
            tf.sparse.to_dense(tf.sparse.SparseTensor(path.indices, path.values, tf.cast(size, tf.int64)), classes - 1)
            for path in paths
        ]
        labels = tf.stack(dense, axis=1)
        decoded = tf.reduce_sum(tf.cast(labels != classes - 1, tf.int32), axis=2)
        return -tf.cast(scores, logits.dtype), decoded, tf.gather(tf.constant(order, tf.int32), labels)


def ctc_beam_search_decoder_with_log_probs(
    log_probs: Any,
    input_lengths: Any,
    beam_width: int = 100,
    top_paths: int = 1,
    blank_index: int = -1,
    name: Optional[str] = None,
) -> Tuple[Any, Any, Any]:
    """As ``ctc_beam_search_decoder`` of values that are logarithms of probabilities, whose softmax are they again."""
    return ctc_beam_search_decoder(log_probs, input_lengths, beam_width, top_paths, blank_index, name)


def _blank(data: Any, blank: int) -> int:
    if data.shape.rank != 3 or data.shape[2] is None:
        raise ValueError(f"Values of shape {data.shape} were given; use [time, batch, classes], with known classes.")
    classes = int(data.shape[2])
    if not -classes <= blank < classes:
        raise ValueError(f"`blank_index` is {blank} for {classes} classes; use the number of a class.")
    return blank % classes
