"""Loops on the device: how often their bodies run, on which values, and what they return."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_conformance import check

from ..device_programs import Device
from ..exact import samples


def test_repeat_runs_so_many_times(device: Device) -> None:
    """``repeat`` applies its body n times, and 0 times leaves the values as they are."""
    repeat = device.open().ipu.loops.repeat

    results = device.run(lambda: [repeat(number, lambda x: 2 * x + 1, [3.0]) for number in (0, 1, 5)])

    expected = np.asarray([3, 7, 127], np.float32)
    check.identical(actual=np.asarray(results), expected=expected, what="3 after 0, 1 and 5 times 2x + 1")


def test_repeat_takes_a_number_that_is_computed(device: Device) -> None:
    """The number of iterations may be a tensor."""
    device.open().variable("steps", 3.0)
    tf, repeat = device.tf, device.ipu.loops.repeat

    (result,) = device.run(lambda: repeat(tf.cast(device.variable("steps", 3.0), tf.int32), lambda x: 2 * x + 1, [3.0]))

    check.identical(actual=result, expected=np.float32(31), what="3 after 3 times 2x + 1")


def test_values_of_a_loop_stay_apart(device: Device) -> None:
    """Several values are passed, changed and returned in order."""
    results = device.open().repeat(4, lambda a, b, c: (b, a + b, c + a * b), values=[1.0, 1.0, 0.5])

    check.equal(actual=[float(each) for each in results], expected=[5, 8, 24.5], what="the values after 4 iterations")


def test_a_loop_without_values_returns_an_operation(device: Device) -> None:
    """A loop without values is an operation, which has the effects of the body."""
    device.open().variable("total", 0.0)
    operations = []

    def program() -> Any:
        total = device.variable("total", 0.0)
        operations.append(device.ipu.loops.repeat(3, lambda: total.assign_add(2.0).op, []))
        return operations[-1]

    device.run(program)

    check.instance(actual=operations[-1], expected=device.tf.Operation, what="what repeat returns")
    check.equal(actual=float(device.read(["total"])[0]), expected=6.0, what="the total after 3 times 2")


def test_for_loop_counts(device: Device) -> None:
    """``for_loop`` passes start, start + step, … as the first argument of its body, and stops before end."""
    ranges, tf, loops = [(0, 5, 1), (2, 9, 3), (5, 5, 1), (6, 0, -2)], device.open().tf, device.ipu.loops
    digits = lambda i, x: 10 * x + tf.cast(i, tf.float32)  # noqa: E731

    results = device.run(lambda: [loops.for_loop(*numbers, digits, [1.0]) for numbers in ranges])

    expected = np.asarray([101234, 1258, 1, 1642], np.float32)
    check.identical(actual=np.asarray(results), expected=expected, what=f"the digits of for_loops over {ranges}")


def test_for_loop_is_fed(device: Device) -> None:
    """A body gets the number, the values, and then what the infeed gives."""
    tf, queue, loops = device.open().tf, device.infeed(samples(3)), device.ipu.loops

    (result,) = device.run(
        lambda: loops.for_loop(1, 4, 1, lambda i, x, y: x + tf.cast(i, tf.float32) * y, [0.0], queue)
    )

    check.identical(actual=result, expected=np.float32(samples(3) @ [1, 2, 3]), what="the sum of number times element")


def test_while_loop_runs_while_its_condition_holds(device: Device) -> None:
    """``while_loop`` stops when its condition is false, or after ``maximum_iterations``."""
    limits, loops = [(1.0, None), (7.0, None), (100.0, None), (20.0, 1), (20.0, 2), (20.0, 50)], device.open().ipu.loops

    def program() -> Any:
        return [
            loops.while_loop(lambda x, limit=limit: x < limit, lambda x: 2 * x + 1, [1.0], maximum_iterations=most)
            for limit, most in limits
        ]

    actual, expected = np.asarray(device.run(program)), np.asarray([1, 7, 127, 3, 7, 31], np.float32)
    check.identical(actual=actual, expected=expected, what=f"1, 3, 7, … by limit and maximum_iterations {limits}")


@pytest.mark.parametrize("replicas", [1, 4])
def test_while_loop_is_fed(device: Device, replicas: int) -> None:
    """The condition sees the values only; the body also takes what the infeed gives its replica."""
    queue, loops = device.open(replicas).infeed(samples(15)), device.ipu.loops
    below, body = lambda total, number: number < 3.0, lambda total, number, x: (total + x, number + 1)

    result, _ = device.run(lambda: loops.while_loop(below, body, [0.0, 0.0], queue))

    expected = samples(15)[: 3 * replicas : replicas].sum()
    check.identical(actual=result, expected=expected, what="the sum of replica 0 over 3 iterations")


@pytest.mark.parametrize("returned", [0, 2])
def test_a_body_returns_a_value_for_each_input(device: Device, returned: int) -> None:
    """A body that returns another number of tensors is refused."""
    sentence = f"returned {returned} tensors for 1 inputs"
    with check.raises(ValueError, match=sentence, what=f"a body of 1 input that returns {returned} tensors"):
        device.open().repeat(2, lambda x: [x] * returned, values=[1.0])


def test_operations_come_after_tensors(device: Device) -> None:
    """A body returns its tensors first."""
    with check.raises(ValueError, match="followed by", what="a body that returns an operation before its tensor"):
        device.open().repeat(2, lambda x: [device.tf.no_op(), x], values=[1.0])


def test_loops_can_be_nested(device: Device) -> None:
    """A body may run a loop of its own."""
    loops = device.open().ipu.loops

    (result,) = device.run(lambda: loops.repeat(3, lambda x: loops.repeat(2, lambda y: y + 1, [2 * x]), [1.0]))

    check.identical(actual=result, expected=np.float32(((1 * 2 + 2) * 2 + 2) * 2 + 2), what="the nested loops")


@pytest.mark.parametrize("replicas", [1, 4])
def test_replicas_meet_in_every_iteration(device: Device, replicas: int) -> None:
    """A sum over replicas inside a loop is that of the elements of the same iteration."""
    queue, out = device.open(replicas).infeed(samples(3 * replicas)), device.outfeed()

    device.repeat(3, lambda x: out.enqueue(device.ipu.cross_replica_ops.cross_replica_sum(x)), queue)

    sums = samples(3 * replicas).reshape(3, replicas).sum(axis=1)
    expected = np.stack([sums] * replicas, axis=1) if replicas > 1 else sums
    check.identical(actual=device.dequeue(out), expected=expected, what="cross_replica_sum by iteration and replica")


def test_a_body_knows_its_iteration(device: Device) -> None:
    """The counter of a loop goes up from 0."""
    out, tf, counter = device.open().outfeed(), device.tf, device.ipu.internal_ops.get_current_iteration_counter
    device.repeat(4, lambda: out.enqueue(tf.cast(counter(), tf.float32)))

    check.equal(actual=device.dequeue(out).tolist(), expected=[0, 1, 2, 3], what="the counter, by iteration")


def test_updates_do_not_begin_the_count_again(device: Device) -> None:
    """The counter is that of the loop, also where gradients are accumulated over some of its iterations."""
    out, tf, counter = device.open().outfeed(), device.tf, device.ipu.internal_ops.get_current_iteration_counter
    device.declare(w0=1.0)

    def body() -> Any:
        weight, number = device.variable("w0", 1.0), tf.cast(counter(), tf.float32)
        descent = tf.compat.v1.train.GradientDescentOptimizer(0.5)
        accumulating = device.ipu.optimizers.GradientAccumulationOptimizerV2(descent, 3)
        return out.enqueue(number), accumulating.minimize(weight * number, var_list=[weight])

    device.repeat(6, body)

    check.equal(actual=device.dequeue(out).tolist(), expected=[0, 1, 2, 3, 4, 5], what="the counter, by iteration")
    check.equal(actual=device.read(["w0"]), expected=[1 - 0.5 * 15], what="the weight after two updates")


def test_the_counter_needs_a_loop(ipu: Any) -> None:
    """Outside of loops there are no iterations to count."""
    with check.raises(ValueError, match="outside of a loop", what="the counter without a loop"):
        ipu.internal_ops.get_current_iteration_counter()


def test_a_body_is_converted(tf: Any, ipu: Any, strategy: Any) -> None:
    """Python conditions on tensors work in the body of a loop."""

    def body(x: Any) -> Any:
        if x > 4.0:
            x = x - 4.0
        return 2.0 * x

    result = strategy.run(tf.function(lambda: ipu.loops.repeat(4, body, [3.0])))

    check.equal(actual=float(result), expected=8.0, what="3 after 4 times 2x, less 8 above 4")
