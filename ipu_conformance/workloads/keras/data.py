"""Images and labels as data sets of TensorFlow, pixels from 0 to 1."""

from __future__ import annotations

from typing import Any, Callable, Tuple

import numpy as np
import tensorflow as tf

from ipu_conformance.data import Split


def training_set(split: Split, batch: int, seed: int) -> Any:
    """Whole batches without an end; each pass over the samples has an order of its own, the same on every target."""

    def order(number: Any) -> Any:
        # Drawn without state: the seeds of TensorFlow and of the device have no part in it.
        drawn = tf.random.stateless_uniform([len(split)], seed=tf.stack([tf.constant(seed, tf.int64), number]))
        return tf.data.Dataset.from_tensor_slices(tf.argsort(drawn, stable=True))

    return _batches(tf.data.Dataset.range(tf.int64.max).flat_map(order), split, batch)


def test_set(split: Split, batch: int) -> Any:
    """All samples in their order; the batch divides them."""
    return _batches(tf.data.Dataset.range(len(split)), split, batch)


def _batches(numbers: Any, split: Split, batch: int) -> Any:
    # Numbers are shuffled and images gathered by the batch: moving single images about would cost more than training.
    gather = _from_tensors(split) if tf.executing_eagerly() else _from_arrays(split, batch)

    def samples(chosen: Any) -> Tuple[Any, Any]:
        images, labels = gather(chosen)
        return tf.cast(images, tf.float32) / 255.0, labels

    return numbers.batch(batch, drop_remainder=True).map(samples)


def _from_tensors(split: Split) -> Callable[[Any], Tuple[Any, Any]]:
    images, labels = tf.constant(split.images), tf.constant(split.labels.astype(np.int32))
    return lambda chosen: (tf.gather(images, chosen), tf.gather(labels, chosen))


def _from_arrays(split: Split, batch: int) -> Callable[[Any], Tuple[Any, Any]]:
    """A graph would hold the tensors of all samples, and write them wherever it is saved."""
    labels = split.labels.astype(np.int32)

    def gather(chosen: Any) -> Tuple[Any, Any]:
        found = tf.numpy_function(lambda own: (split.images[own], labels[own]), [chosen], [tf.uint8, tf.int32])
        return tf.ensure_shape(found[0], (batch, *split.images.shape[1:])), tf.ensure_shape(found[1], (batch,))

    return gather
