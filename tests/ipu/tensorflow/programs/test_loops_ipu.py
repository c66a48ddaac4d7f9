"""Loops on the device, and training loops as users write them: how often bodies run, and what they leave."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from ..device_programs import Device
from ..exact import samples

RANGES = [(0, 5, 1), (2, 9, 3), (5, 5, 1), (6, 0, -2)]
LIMITS = [(1.0, None), (7.0, None), (100.0, None), (20.0, 1), (20.0, 2), (20.0, 50)]
LOOPS: Dict[str, Tuple[Callable[[Any, Any], Any], List[float]]] = {
    "3 after 0, 1 and 5 times 2x + 1": (
        lambda tf, loops: [loops.repeat(number, lambda x: 2 * x + 1, [3.0]) for number in (0, 1, 5)], [3, 7, 127],
    ),
    "3 after a computed number of times 2x + 1": (
        lambda tf, loops: loops.repeat(tf.cast(tf.sqrt(9.0), tf.int32), lambda x: 2 * x + 1, [3.0]), [31],
    ),
    "three values that are passed, changed and returned": (
        lambda tf, loops: loops.repeat(4, lambda a, b, c: (b, a + b, c + a * b), [1.0, 1.0, 0.5]), [5, 8, 24.5],
    ),
    "the digits of start, start + step and so on before end": (
        lambda tf, loops: [
            loops.for_loop(*numbers, lambda i, x: 10 * x + tf.cast(i, tf.float32), [1.0]) for numbers in RANGES
        ], [101234, 1258, 1, 1642],
    ),
    "2x + 1 while x is below a limit and there are iterations": (
        lambda tf, loops: [
            loops.while_loop(lambda x, limit=limit: x < limit, lambda x: 2 * x + 1, [1.0], maximum_iterations=most)
            for limit, most in LIMITS
        ], [1, 7, 127, 3, 7, 31],
    ),
    "a loop in the body of a loop": (
        lambda tf, loops: loops.repeat(3, lambda x: loops.repeat(2, lambda y: y + 1, [2 * x]), [1.0]), [22],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", LOOPS)
def test_a_loop_leaves_its_values(device: Device, what: str) -> None:
    """``repeat``, ``for_loop`` and ``while_loop`` apply their bodies as often as they are told."""
    program, expected = LOOPS[what]
    device.open()

    results = np.ravel(device.run(lambda: program(device.tf, device.ipu.loops)))
    check.identical(actual=results, expected=np.asarray(expected, np.float32), what=what)


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


def test_for_loop_is_fed(device: Device) -> None:
    """A body gets the number, the values, and then what the infeed gives."""
    tf, queue, loops = device.open().tf, device.infeed(samples(3)), device.ipu.loops

    (result,) = device.run(
        lambda: loops.for_loop(1, 4, 1, lambda i, x, y: x + tf.cast(i, tf.float32) * y, [0.0], queue)
    )

    check.identical(actual=result, expected=np.float32(samples(3) @ [1, 2, 3]), what="the sum of number times element")


@pytest.mark.parametrize("replicas", [1, 4])
def test_while_loop_is_fed(device: Device, replicas: int) -> None:
    """The condition sees the values only; the body also takes what the infeed gives its replica."""
    queue, loops = device.open(replicas).infeed(samples(15)), device.ipu.loops
    below, body = lambda total, number: number < 3.0, lambda total, number, x: (total + x, number + 1)

    result, _ = device.run(lambda: loops.while_loop(below, body, [0.0, 0.0], queue))

    expected = samples(15)[: 3 * replicas : replicas].sum()
    check.identical(actual=result, expected=expected, what="the sum of replica 0 over 3 iterations")


@pytest.mark.parametrize("replicas", [1, 4])
def test_replicas_meet_in_every_iteration(device: Device, replicas: int) -> None:
    """A sum over replicas inside a loop is that of the elements of the same iteration."""
    outfed = device.open(replicas).outfed(3, device.ipu.cross_replica_ops.cross_replica_sum, samples(3 * replicas))

    sums = samples(3 * replicas).reshape(3, replicas).sum(axis=1)
    expected = np.stack([sums] * replicas, axis=1) if replicas > 1 else sums
    check.identical(actual=outfed, expected=expected, what="cross_replica_sum by iteration and replica")


def test_a_body_knows_its_iteration(device: Device) -> None:
    """The counter of a loop goes up from 0."""
    counter, tf = device.open().ipu.internal_ops.get_current_iteration_counter, device.tf
    outfed = device.outfed(4, lambda: tf.cast(counter(), tf.float32))

    check.equal(actual=outfed.tolist(), expected=[0, 1, 2, 3], what="the counter, by iteration")


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


def test_a_body_is_converted(tf: Any, ipu: Any, strategy: Any) -> None:
    """Python conditions on tensors work in the body of a loop."""

    def body(x: Any) -> Any:
        if x > 4.0:
            x = x - 4.0
        return 2.0 * x

    result = strategy.run(tf.function(lambda: ipu.loops.repeat(4, body, [3.0])))

    check.equal(actual=float(result), expected=8.0, what="3 after 4 times 2x, less 8 above 4")


def test_a_step_that_makes_its_variables_enqueues(tf: Any, ipu: Any, configure: Any) -> None:
    """A function whose first call makes variables is traced twice, and yet enqueues once an iteration."""
    configure(1)
    strategy = ipu.ipu_strategy.IPUStrategyV1()
    with strategy.scope():
        variables: Any = []
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        @tf.function
        def step(x: Any) -> None:
            if not variables:
                variables.append(tf.Variable([1.0, 2.0]))
            variables[0].assign_add(x)
            outfeed.enqueue(variables[0].read_value())

        @tf.function
        def loop(count: Any, iterator: Any) -> None:
            for _ in tf.range(count):
                step(next(iterator))

        rows = np.arange(6, dtype=np.float32).reshape(3, 2)
        strategy.run(loop, args=(3, iter(tf.data.Dataset.from_tensor_slices(rows))))

    expected = np.cumsum(rows, axis=0) + np.asarray([1, 2], np.float32)
    check.identical(actual=outfeed.dequeue().numpy(), expected=expected, what="the variable, by iteration")


def test_statistics_move_on_every_replica(tf: Any, eager: Device) -> None:
    """The running mean and variance of each replica move with its own batches, those of all but the first too."""
    replicas, steps = 4, 3
    middle = np.arange(1, steps * replicas + 1, dtype=np.float32)[:, None, None]
    spread = np.square(np.arange(steps * replicas, dtype=np.float32))[:, None, None] % 5 + 1
    with eager.open(replicas).strategy.scope():
        layer = tf.keras.layers.BatchNormalization(momentum=0.5)
        layer.build((2, 1))

    def body(x: Any) -> Any:
        layer(x, training=True)
        return [layer.moving_mean.read_value(), layer.moving_variance.read_value()]

    outfed = eager.outfed(steps, body, np.concatenate([middle - spread, middle + spread], axis=1))

    for what, start, values, actual in zip(("mean", "variance"), (0, 1), (middle, spread**2), outfed):
        held, expected = np.full(replicas, start, np.float32), []
        for now in values.reshape(steps, replicas):
            held = (held + now) / 2
            expected.append(held)
        check.identical(actual=actual[..., 0], expected=np.stack(expected), what=f"the running {what}, by replica")
