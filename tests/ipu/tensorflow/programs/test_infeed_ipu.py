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


@pytest.mark.parametrize("tensors", [1, 2])
def test_a_batch_that_may_be_smaller_is_refused(tf: Any, ipu: Any, tensors: int) -> None:
    """No tensor of an element may have a shape that is not fully defined; the message names shape and remedy."""
    batches = dataset(tf).batch(3)
    batches = tf.data.Dataset.zip((dataset(tf).batch(3, drop_remainder=True), batches)) if tensors == 2 else batches

    sentence = r"Output shape \(None,\) is not fully defined.*drop_remainder=True"
    with check.raises(ValueError, match=sentence, what="an infeed of batches that may be smaller"):
        ipu.ipu_infeed_queue.IPUInfeedQueue(batches)


@pytest.mark.parametrize("elements", [1, 2, 3])
def test_a_queue_counts_the_tensors_of_an_element(tf: Any, ipu: Any, elements: int) -> None:
    """A queue has as many tuple elements as the data set."""
    queue = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.zip((dataset(tf),) * elements))

    check.equal(actual=queue.number_of_tuple_elements, expected=elements, what="number_of_tuple_elements")


def test_a_dictionary_in_a_tuple_is_one_element(tf: Any, ipu: Any) -> None:
    """A body gets features by name as one argument, and labels as a second."""
    features = tf.data.Dataset.zip({"a": dataset(tf), "b": dataset(tf), "c": dataset(tf)})
    queue = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.zip((features, dataset(tf))))

    check.equal(actual=queue.number_of_tuple_elements, expected=2, what="number_of_tuple_elements")


def test_a_queue_is_no_iterator(tf: Any, ipu: Any) -> None:
    """Elements are taken by loops and pipelines only."""
    with check.raises(ValueError, match="obsolete", what="get_next of an infeed"):
        ipu.ipu_infeed_queue.IPUInfeedQueue(dataset(tf)).get_next()


def test_the_initializer_begins_again(tf: Any, ipu: Any, configure: Any) -> None:
    """In eager mode asking for the initializer begins with the first element again, for programs that are compiled."""
    device = Device(tf, ipu, configure, "function").open()
    queue = device.infeed(samples(11))
    go = device.compile(lambda: device.ipu.loops.repeat(3, lambda total, x: total + x, [0.0], queue))
    totals = [float(go()[0]), float(go()[0])]
    _ = queue.initializer
    totals.append(float(go()[0]))

    sums = [float(samples(11)[start : start + 3].sum()) for start in (0, 3, 0)]
    check.equal(actual=totals, expected=sums, what="the sums of three elements, the third after the initializer")


@pytest.mark.parametrize("depth", [0, -1, 256])
def test_a_prefetch_depth_is_positive(tf: Any, ipu: Any, depth: int) -> None:
    """At least one element is prefetched, and fewer than 256 are."""
    with check.raises(ValueError, match="prefetch_depth", what=f"a prefetch_depth of {depth}"):
        ipu.ipu_infeed_queue.IPUInfeedQueue(dataset(tf), prefetch_depth=depth)


def test_the_initialiser_is_given_once(tf: Any, ipu: Any) -> None:
    """A queue of a graph gives its initialiser once."""
    with tf.Graph().as_default():
        queue = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset(tf))
        _ = queue.initializer

        with check.raises(ValueError, match="once", what="a second initializer"):
            _ = queue.initializer


def test_a_queue_knows_whether_it_is_used(device: Device) -> None:
    """``dequeued`` is true as soon as a program takes from the queue."""
    queue = device.open().infeed(samples(4))
    before = queue.dequeued
    device.repeat(2, lambda total, x: total + x, queue, [0.0])

    check.equal(actual=(before, queue.dequeued), expected=(False, True), what="dequeued before and after the program")


@pytest.mark.parametrize(("steps", "replicas"), [(5, 1), (1, 6), (3, 2), (2, 4)])
def test_replicas_take_neighbouring_elements(device: Device, steps: int, replicas: int) -> None:
    """In iteration i replica r takes element i·R + r, and the next run goes on where this one ended."""
    queue, out = device.open(replicas).infeed(samples(3 * steps * replicas)), device.outfeed()
    go = device.compile(lambda: device.ipu.loops.repeat(steps, lambda x: out.enqueue(x), [], queue))

    rows = samples(3 * steps * replicas).reshape((3, steps, replicas) if replicas > 1 else (3, steps))
    for run, expected in enumerate(rows):
        go()
        check.identical(actual=device.dequeue(out), expected=expected, what=f"what run {run} took")


FIRST, SECOND = np.split(samples(6), 2)


@pytest.mark.parametrize("rows", [{"b": SECOND, "a": FIRST}, (FIRST, SECOND)], ids=["names", "tuple"])
def test_elements_of_several_tensors_are_arguments(device: Device, rows: Any) -> None:
    """A dictionary becomes keyword arguments of the body, a tuple positional ones after the values of the loop."""
    queue = device.open().infeed(rows)

    (result,) = device.repeat(3, lambda total, a, b: total + a - 2 * b, queue, [0.0])

    check.identical(actual=result, expected=np.float32(FIRST.sum() - 2 * SECOND.sum()), what="the sum")


def test_the_end_of_the_data_ends_the_run(device: Device) -> None:
    """A loop that asks for more elements than there are fails with OutOfRangeError, as a data set does."""
    queue = device.open().infeed(samples(2))
    go = device.compile(lambda: device.ipu.loops.repeat(3, lambda total, x: total + x, [0.0], queue))

    with check.raises(device.tf.errors.OutOfRangeError, match="", what="a loop of 3 steps on 2 elements"):
        go()


@pytest.mark.parametrize("replicas", [1, 4])
def test_an_iterator_feeds_functions(tf: Any, ipu: Any, strategy_on: Any, replicas: int) -> None:
    """Each run of a strategy's function takes R elements of an IPUIterator; the host sees those of replica 0."""
    strategy, rows = strategy_on(replicas), samples(3 * replicas)
    iterator = ipu.ipu_infeed_queue.IPUIterator(dataset=dataset(tf, len(rows)))
    taken = tf.function(lambda elements: next(elements))

    elements = [float(strategy.run(taken, args=(iterator,))) for _ in range(3)]

    check.equal(actual=elements, expected=rows[::replicas].tolist(), what="the elements of replica 0, by run")


def test_an_iterator_needs_known_shapes(tf: Any, ipu: Any) -> None:
    """IPUIterator refuses shapes that are not fully defined, as a queue does."""
    with check.raises(ValueError, match="not fully defined", what="an IPUIterator of batches that may be smaller"):
        ipu.ipu_infeed_queue.IPUIterator(dataset=dataset(tf).batch(2))


def test_an_iterator_needs_eager_mode(tf: Any, ipu: Any) -> None:
    """A graph has no IPUIterator."""
    with tf.Graph().as_default(), check.raises(RuntimeError, match="eager", what="an IPUIterator in a graph"):
        ipu.ipu_infeed_queue.IPUIterator(dataset=dataset(tf))
