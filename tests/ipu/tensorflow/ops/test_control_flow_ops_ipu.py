"""Barriers: what must be finished before something else begins."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize("gradients", [True, False])
def test_a_barrier_changes_no_value(tf: Any, ipu: Any, gradients: bool) -> None:
    """Tensors, and their gradients, pass a barrier as they are."""
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        doubled, tripled = ipu.control_flow_ops.barrier([x * 2, x * 3], insert_barrier_for_gradients=gradients)
        product = doubled * tripled

    assert (doubled.numpy(), tripled.numpy(), tape.gradient(product, x).numpy()) == (4, 6, 24)


def test_a_barrier_waits_for_all(tf: Any, ipu: Any) -> None:
    """What uses one tensor behind a barrier depends on the operations of all of them."""

    @tf.function
    def program(x: Any) -> Any:
        first, second = tf.add(x, 1, name="first"), tf.add(x, 2, name="second")
        held, _ = ipu.control_flow_ops.barrier([first, second])
        return tf.identity(held, name="behind")

    graph = program.get_concrete_function(tf.TensorSpec([], tf.float32)).graph
    waiting, seen = [graph.get_operation_by_name("behind")], set()
    while waiting:
        operation = waiting.pop()
        seen.add(operation.name)
        waiting += [tensor.op for tensor in operation.inputs] + list(operation.control_inputs)

    assert {"first", "second"} <= seen


def test_a_barrier_is_of_something(ipu: Any) -> None:
    """A barrier of no tensors is refused."""
    with pytest.raises(ValueError, match="No tensors"):
        ipu.control_flow_ops.barrier([])
