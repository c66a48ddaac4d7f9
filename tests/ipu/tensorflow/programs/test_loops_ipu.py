"""Loops on the device: how often their bodies run, on which values, and what they return."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_conformance import check

from ..device_programs import Device
from ..exact import samples


@pytest.mark.parametrize("times", [0, 1, 5])
def test_repeat_runs_so_many_times(device: Device, times: int) -> None:
    """``repeat`` applies its body n times; none leaves the values as they are."""
    device.open()

    (result,) = device.repeat(times, lambda x: 2 * x + 1, values=[3.0])

    check.identical(actual=result, expected=np.float32(4 * 2**times - 1), what="the value")


def test_repeat_takes_a_number_that_is_computed(device: Device) -> None:
    """The number of iterations may be a tensor."""
    device.open()
    steps = device.variable("steps", 3.0) if device.mode == "function" else None

    def program() -> Any:
        number = device.variable("steps", 3.0) if steps is None else steps
        return device.ipu.loops.repeat(device.tf.cast(number, device.tf.int32), lambda x: 2 * x + 1, [3.0])

    check.identical(actual=device.run(program)[0], expected=np.float32(31), what="the value")


def test_values_of_a_loop_stay_apart(device: Device) -> None:
    """Several values are passed, changed and returned in order."""
    device.open()

    first, second = device.repeat(4, lambda a, b: (b, a + b), values=[1.0, 1.0])

    assert (float(first), float(second)) == (5.0, 8.0)


def test_a_loop_without_values_returns_an_operation(device: Device) -> None:
    """A loop for its effects is an operation."""
    device.open()
    device.variable("total", 0.0)
    operations = []

    def program() -> Any:
        total = device.variable("total", 0.0)
        operations.append(device.ipu.loops.repeat(3, lambda: total.assign_add(2.0).op, []))
        return operations[-1]

    device.run(program)

    assert isinstance(operations[-1], device.tf.Operation)
    assert float(device.read(["total"])[0]) == 6.0


@pytest.mark.parametrize(("start", "end", "step"), [(0, 5, 1), (2, 9, 3), (5, 5, 1), (6, 0, -2)])
def test_for_loop_counts(device: Device, start: int, end: int, step: int) -> None:
    """``for_loop`` passes start, start + step, … as the first argument of its body, and stops before end."""
    device.open()
    tf = device.tf

    (result,) = device.run(
        lambda: device.ipu.loops.for_loop(start, end, step, lambda i, x: 10 * x + tf.cast(i, tf.float32), [1.0])
    )

    expected = 1.0
    for number in range(start, end, step):
        expected = 10 * expected + number
    check.identical(actual=result, expected=np.float32(expected), what="the digits")


def test_for_loop_is_fed(device: Device) -> None:
    """The number, the values and then what the infeed gives are the arguments of a body."""
    device.open()
    tf, queue = device.tf, device.infeed(samples(3))

    (result,) = device.run(
        lambda: device.ipu.loops.for_loop(1, 4, 1, lambda i, x, y: x + tf.cast(i, tf.float32) * y, [0.0], queue)
    )

    check.identical(actual=result, expected=np.float32(samples(3) @ [1, 2, 3]), what="the sum")


@pytest.mark.parametrize("limit", [1.0, 7.0, 100.0])
def test_while_loop_runs_while_its_condition_holds(device: Device, limit: float) -> None:
    """``while_loop`` stops when its condition of the values is false."""
    device.open()

    (result,) = device.run(lambda: device.ipu.loops.while_loop(lambda x: x < limit, lambda x: 2 * x + 1, [1.0]))

    expected = 1.0
    while expected < limit:
        expected = 2 * expected + 1
    check.identical(actual=result, expected=np.float32(expected), what="the value")


@pytest.mark.parametrize("most", [1, 2, 50])
def test_while_loop_can_be_limited(device: Device, most: int) -> None:
    """There are no more than ``maximum_iterations``."""
    device.open()

    (result,) = device.run(
        lambda: device.ipu.loops.while_loop(lambda x: x < 20.0, lambda x: 2 * x + 1, [1.0], maximum_iterations=most)
    )

    check.identical(actual=result, expected=np.float32({1: 3, 2: 7, 50: 31}[most]), what="the value")


@pytest.mark.parametrize("replicas", [1, 2])
def test_while_loop_is_fed(device: Device, replicas: int) -> None:
    """The condition sees the values only; the body also takes what the infeed gives its replica."""
    device.open(replicas)
    queue = device.infeed(samples(12))

    (result, _) = device.run(
        lambda: device.ipu.loops.while_loop(
            lambda total, number: number < 3.0, lambda total, number, x: (total + x, number + 1), [0.0, 0.0], queue
        )
    )

    check.identical(actual=result, expected=samples(12)[: 3 * replicas : replicas].sum(), what="replica 0's sum")


@pytest.mark.parametrize("returned", [0, 2])
def test_a_body_returns_a_value_for_each_input(device: Device, returned: int) -> None:
    """A body that returns another number of tensors is refused."""
    device.open()

    with pytest.raises(ValueError, match=f"returned {returned} tensors for 1 inputs"):
        device.repeat(2, lambda x: [x] * returned, values=[1.0])


def test_operations_come_after_tensors(device: Device) -> None:
    """A body returns its tensors first."""
    device.open()

    with pytest.raises(ValueError, match="followed by"):
        device.repeat(2, lambda x: [device.tf.no_op(), x], values=[1.0])


def test_loops_can_be_nested(device: Device) -> None:
    """A body may run a loop of its own."""
    device.open()
    loops = device.ipu.loops

    (result,) = device.run(lambda: loops.repeat(3, lambda x: loops.repeat(2, lambda y: y + 1, [2 * x])[0], [1.0]))

    check.identical(actual=result, expected=np.float32(((1 * 2 + 2) * 2 + 2) * 2 + 2), what="the value")


@pytest.mark.parametrize("replicas", [1, 2])
def test_replicas_meet_in_every_iteration(device: Device, replicas: int) -> None:
    """A sum over replicas inside a loop is that of the elements of the same iteration."""
    device.open(replicas)
    queue, out = device.infeed(samples(3 * replicas)), device.outfeed()

    def body(x: Any) -> Any:
        return out.enqueue(device.ipu.cross_replica_ops.cross_replica_sum(x))

    device.repeat(3, body, queue)
    sums = samples(3 * replicas).reshape(3, replicas).sum(axis=1)
    got = device.dequeue(out)

    check.identical(actual=got, expected=np.stack([sums] * replicas, axis=1) if replicas > 1 else sums, what="the sums")


def test_a_body_knows_its_iteration(device: Device) -> None:
    """The counter of a loop goes from 0."""
    device.open()
    out, tf = device.outfeed(), device.tf
    counter = device.ipu.internal_ops.get_current_iteration_counter
    device.run(lambda: device.ipu.loops.repeat(4, lambda: out.enqueue(tf.cast(counter(), tf.float32)), []))

    assert device.dequeue(out).tolist() == [0.0, 1.0, 2.0, 3.0]


def test_the_counter_needs_a_loop(ipu: Any) -> None:
    """Outside of loops there is no iteration."""
    with pytest.raises(ValueError, match="outside of a loop"):
        ipu.internal_ops.get_current_iteration_counter()


def test_a_body_is_converted(tf: Any, ipu: Any, strategy: Any) -> None:
    """Python's conditions on tensors work in the body of a loop of a converted function."""

    def body(x: Any) -> Any:
        if x > 4.0:
            x = x - 4.0
        return 2.0 * x

    @tf.function
    def program() -> Any:
        return ipu.loops.repeat(4, body, [3.0])

    assert float(strategy.run(program)[0]) == 8.0
