"""How fast a data set gives its elements to the host, measured."""

from __future__ import annotations

import json
from typing import Any, List

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.run import infeed

GIGA = 1e9


def dataset_benchmark(
    dataset: Any,
    number_of_epochs: int,
    elements_per_epochs: int,
    print_stats: bool = True,
    apply_debug_options: bool = True,
    do_memcpy: bool = True,
) -> Any:
    """One string of JSON with what was measured while elements were taken, epoch after epoch, from one iterator.

    Each entry of ``epochs`` has ``elements_processed``, ``total_bytes_processed``, ``time_elapsed`` in seconds,
    ``elements_per_second`` and ``bandwidth`` in gigabytes per second. With ``do_memcpy`` every element is copied.
    """
    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError(f"`dataset` is {dataset!r} of type {type(dataset).__name__}; pass a tf.data.Dataset.")
    for name, number in (("number_of_epochs", number_of_epochs), ("elements_per_epochs", elements_per_epochs)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ValueError(f"`{name}` is {number!r}; use a whole number from 1 on.")
    infeed.check_shapes(dataset.element_spec)

    @tf.function(autograph=False)
    def measure() -> Any:
        iterator = iter(dataset)
        times = tf.TensorArray(tf.float64, size=number_of_epochs, element_shape=[])
        _, times = tf.while_loop(
            lambda epoch, _: epoch < number_of_epochs,
            lambda epoch, held: (epoch + 1, held.write(epoch, _seconds(iterator, elements_per_epochs, do_memcpy))),
            (0, times),
        )
        size = _bytes(dataset.element_spec)
        return tf.numpy_function(
            lambda seconds: _report(seconds, elements_per_epochs, size, print_stats), [times.stack()], tf.string
        )

    with tf.device("/device:CPU:0"):
        return tf.ensure_shape(measure(), [1])


def infeed_benchmark(
    infeed_queue: Any,
    number_of_epochs: int,
    elements_per_epochs: int,
    print_stats: bool = True,
    do_memcpy: bool = True,
) -> Any:
    """The same measurement for the data set of an infeed, which itself gives no element away."""
    if not isinstance(infeed_queue, infeed.IPUInfeedQueue):
        raise TypeError(f"`infeed_queue` is {infeed_queue!r}; pass an IPUInfeedQueue.")
    return dataset_benchmark(
        infeed_queue._dataset, number_of_epochs, elements_per_epochs, print_stats, do_memcpy=do_memcpy
    )


def _seconds(iterator: Any, elements: int, copied: bool) -> Any:
    """How long it takes to get so many elements."""

    def take(number: Any) -> Any:
        element = tf.nest.flatten(iterator.get_next(), expand_composites=True)
        if copied:
            element = [tf.raw_ops.DeepCopy(x=value) for value in element]
        with tf.control_dependencies(element):
            return number + 1

    begin = tf.timestamp()
    with tf.control_dependencies([begin]):
        (taken,) = tf.while_loop(lambda number: number < elements, take, (tf.constant(0),), parallel_iterations=1)
    with tf.control_dependencies([taken]):
        return tf.timestamp() - begin


def _bytes(element_spec: Any) -> int:
    """The size of one element; shapes are known."""
    leaves = tf.nest.flatten(element_spec, expand_composites=True)
    return sum(leaf.shape.num_elements() * leaf.dtype.size for leaf in leaves)


def _report(seconds: Any, elements: int, size: int, printed: bool) -> Any:
    import numpy

    epochs: List[Any] = []
    for number, elapsed in enumerate(seconds.tolist()):
        elapsed = max(elapsed, numpy.finfo(numpy.float64).tiny)  # a clock may be too coarse for a small epoch
        entry = {
            "elements_processed": elements,
            "total_bytes_processed": elements * size,
            "time_elapsed": elapsed,
            "elements_per_second": elements / elapsed,
            "bandwidth": elements * size / GIGA / elapsed,
        }
        epochs.append(entry)
        if printed:
            print(
                f"epoch {number + 1}: {elements} elements, {elements * size} bytes in {elapsed:.6f} s, "
                f"{entry['elements_per_second']:.1f} elements/s, {entry['bandwidth']:.6f} GB/s"
            )
    return numpy.array([json.dumps({"epochs": epochs}).encode()], dtype=object)
