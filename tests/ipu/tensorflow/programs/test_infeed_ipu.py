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


@pytest.mark.parametrize(
    ("elements", "number"),
    [((0,), 1), ((0, 1), 2), ((0, 1, 2), 3), (({"a": 0, "b": 1, "c": 2}, 3), 2)],
    ids=["1", "2", "3", "dictionary"],
)
def test_a_queue_counts_the_tensors_of_an_element(tf: Any, ipu: Any, elements: Any, number: int) -> None:
    """A queue has as many tuple elements as the data set; features by name are one argument of a body."""
    sets = tf.data.Dataset.zip(tf.nest.map_structure(lambda _: dataset(tf), elements))
    queue = ipu.ipu_infeed_queue.IPUInfeedQueue(sets)

    check.equal(actual=queue.number_of_tuple_elements, expected=number, what="number_of_tuple_elements")


def test_the_initializer_begins_again(eager: Device) -> None:
    """In eager mode asking for the initializer begins with the first element again, for programs that are compiled."""
    queue, repeat = eager.open().infeed(samples(11)), eager.ipu.loops.repeat
    go = eager.compile(lambda: repeat(3, lambda total, x: total + x, [0.0], queue))
    totals = [float(go()[0]), float(go()[0])]
    _ = queue.initializer
    totals.append(float(go()[0]))

    sums = [float(samples(11)[start : start + 3].sum()) for start in (0, 3, 0)]
    check.equal(actual=totals, expected=sums, what="the sums of three elements, the third after the initializer")


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


@pytest.mark.parametrize("replicas", [1, 4])
def test_an_iterator_feeds_functions(tf: Any, ipu: Any, strategy_on: Any, replicas: int) -> None:
    """Each run of a strategy's function takes R elements of an IPUIterator; the host sees those of replica 0."""
    strategy, rows = strategy_on(replicas), samples(3 * replicas)
    iterator = ipu.ipu_infeed_queue.IPUIterator(dataset=dataset(tf, len(rows)))
    taken = tf.function(lambda elements: next(elements))

    elements = [float(strategy.run(taken, args=(iterator,))) for _ in range(3)]

    check.equal(actual=elements, expected=rows[::replicas].tolist(), what="the elements of replica 0, by run")
