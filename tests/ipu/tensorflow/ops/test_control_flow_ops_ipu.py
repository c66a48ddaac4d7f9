"""Barriers: what must be finished before something else begins."""

from __future__ import annotations

from typing import Any

import pytest

from ipu_conformance import check


@pytest.mark.parametrize("gradients", [True, False])
def test_a_barrier_changes_no_value(tf: Any, ipu: Any, gradients: bool) -> None:
    """Tensors, and their gradients, pass a barrier as they are."""
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        doubled, tripled = ipu.control_flow_ops.barrier([x * 2, x * 3], insert_barrier_for_gradients=gradients)
        product = doubled * tripled

    values = (float(doubled), float(tripled), float(tape.gradient(product, x)))
    check.equal(actual=values, expected=(4, 6, 24), what="2x, 3x and the gradient of their product behind a barrier")


def test_a_barrier_waits_for_all(tf: Any, ipu: Any) -> None:
    """What uses one tensor behind a barrier depends on the operations of all of them."""

    @tf.function
    def program(x: Any) -> Any:
        tensors = [tf.add(x, number, name=f"add{number}") for number in range(3)]
        return tf.identity(ipu.control_flow_ops.barrier(tensors)[0], name="behind")

    graph = program.get_concrete_function(tf.TensorSpec([], tf.float32)).graph
    waiting, seen = [graph.get_operation_by_name("behind")], set()
    while waiting:
        operation = waiting.pop()
        seen.add(operation.name)
        waiting += [tensor.op for tensor in operation.inputs] + list(operation.control_inputs)

    adds = ["add0", "add1", "add2"]
    check.equal(actual=sorted(seen.intersection(adds)), expected=adds, what="the tensors that the barrier waits for")
