"""Infeeds: what they accept, and which element each replica takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_conformance import check

from ..device_programs import Device
from ..exact import samples


def dataset(tf: Any, rows: int = 7) -> Any:
    """A data set of numbers."""
    return tf.data.Dataset.from_tensor_slices(samples(rows))


@pytest.mark.parametrize("size", [2, 3])
def test_a_batch_that_may_be_smaller_is_refused(tf: Any, ipu: Any, size: int) -> None:
    """A shape that is not fully defined cannot be fed; the message names the shape and the remedy."""
    with pytest.raises(ValueError, match=r"Output shape \(None,\) is not fully defined.*drop_remainder=True"):
        ipu.ipu_infeed_queue.IPUInfeedQueue(dataset(tf).batch(size))


def test_one_unknown_shape_among_others_is_refused(tf: Any, ipu: Any) -> None:
    """Every tensor of an element needs a known shape."""
    mixed = tf.data.Dataset.zip((dataset(tf).batch(2, drop_remainder=True), dataset(tf).batch(2)))

    with pytest.raises(ValueError, match="not fully defined"):
        ipu.ipu_infeed_queue.IPUInfeedQueue(mixed)


@pytest.mark.parametrize("elements", [1, 2, 3])
def test_a_queue_counts_the_tensors_of_an_element(tf: Any, ipu: Any, elements: int) -> None:
    """The number of tuple elements is that of the data set."""
    queue = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.zip((dataset(tf),) * elements))

    assert queue.number_of_tuple_elements == elements


@pytest.mark.parametrize("depth", [0, -1])
def test_a_prefetch_depth_is_positive(tf: Any, ipu: Any, depth: int) -> None:
    """At least one element is prefetched."""
    with pytest.raises(ValueError, match="prefetch_depth"):
        ipu.ipu_infeed_queue.IPUInfeedQueue(dataset(tf), prefetch_depth=depth)


def test_the_initialiser_is_given_once(tf: Any, ipu: Any) -> None:
    """In a graph the initialiser of a queue can be asked for once."""
    with tf.Graph().as_default():
        queue = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset(tf))
        _ = queue.initializer

        with pytest.raises(ValueError, match="once"):
            _ = queue.initializer


def test_a_queue_knows_whether_it_is_used(device: Device) -> None:
    """A queue is dequeued as soon as a program takes from it."""
    queue = device.open().infeed(samples(4))
    before = queue.dequeued
    device.repeat(2, lambda total, x: total + x, queue, [0.0])

    assert (before, queue.dequeued) == (False, True)


@pytest.mark.parametrize("replicas", [1, 2, 4])
@pytest.mark.parametrize("steps", [1, 3])
def test_replicas_take_neighbouring_elements(device: Device, replicas: int, steps: int) -> None:
    """In iteration i replica r takes element i·R + r, and the next run goes on where this one ended."""
    device.open(replicas)
    queue, out = device.infeed(samples(2 * steps * replicas)), device.outfeed()
    go = device.compile(lambda: device.ipu.loops.repeat(steps, lambda x: out.enqueue(x), [], queue))
    go()
    first = device.dequeue(out)
    go()
    second = device.dequeue(out)

    expected = samples(2 * steps * replicas).reshape((2, steps, replicas) if replicas > 1 else (2, steps))
    check.identical(actual=first, expected=expected[0], what="what the first run took")
    check.identical(actual=second, expected=expected[1], what="what the second run took")


FIRST, SECOND = np.split(samples(6), 2)


@pytest.mark.parametrize("rows", [{"b": SECOND, "a": FIRST}, (FIRST, SECOND)], ids=["names", "tuple"])
def test_elements_of_several_tensors_are_arguments(device: Device, rows: Any) -> None:
    """A dictionary becomes keyword arguments of the body, a tuple positional ones after the values of the loop."""
    device.open()
    queue = device.infeed(rows)

    (result,) = device.repeat(3, lambda total, a, b: total + a - 2 * b, queue, [0.0])

    check.identical(actual=result, expected=np.float32(FIRST.sum() - 2 * SECOND.sum()), what="the sum")


def test_the_end_of_the_data_ends_the_run(device: Device) -> None:
    """A loop that asks for more than there is fails as a data set's end does."""
    device.open()
    queue = device.infeed(samples(2))
    go = device.compile(lambda: device.ipu.loops.repeat(3, lambda total, x: total + x, [0.0], queue))

    with pytest.raises(device.tf.errors.OutOfRangeError):
        go()


@pytest.mark.parametrize("replicas", [1, 2])
def test_an_iterator_feeds_functions(tf: Any, ipu: Any, strategy_on: Any, replicas: int) -> None:
    """IPUIterator gives a function of a strategy one element after the other, R of them for R replicas."""
    strategy = strategy_on(replicas)
    iterator = ipu.ipu_infeed_queue.IPUIterator(dataset=dataset(tf, 8))
    taken = tf.function(lambda elements: next(elements))

    got = [float(strategy.run(taken, args=(iterator,))) for _ in range(3)]

    assert got == samples(8)[: 3 * replicas : replicas].tolist()


def test_an_iterator_needs_known_shapes(tf: Any, ipu: Any) -> None:
    """IPUIterator refuses shapes that are not fully defined, as a queue does."""
    with pytest.raises(ValueError, match="not fully defined"):
        ipu.ipu_infeed_queue.IPUIterator(dataset=dataset(tf).batch(2))


def test_an_iterator_needs_eager_mode(tf: Any, ipu: Any) -> None:
    """In a graph there are no iterators of this kind."""
    with tf.Graph().as_default(), pytest.raises(RuntimeError, match="eager"):
        ipu.ipu_infeed_queue.IPUIterator(dataset=dataset(tf))
