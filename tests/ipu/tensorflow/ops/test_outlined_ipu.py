"""Functions that the device holds once, operations of the user, embeddings, barriers and other small operations."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from ..device_programs import Device
from ..exact import RATE, START, check_weight, counts, samples


def _twice(outline: Callable[..., Any]) -> List[Any]:
    """The product and the difference of the product and the difference of 3 and 2."""
    function = outline(lambda a, b: (a * b, a - b))
    return [*function(*function(3.0, 2.0))]


TABLE, FIRST, SECOND = samples(12).reshape(4, 3), samples(5), samples(10)[5:]


def _looked_up(factor: int) -> Callable[[Any, Any], Any]:
    """A lookup in a table that is cut into pieces."""
    settings = {"serialization_factor": factor}
    return lambda tf, ipu: ipu.embedding_ops.embedding_lookup(tf.constant(TABLE), [3, 0, 3], **settings)


OPERATIONS: Dict[str, Tuple[Callable[[Any, Any], Any], Any]] = {
    "outlined": (lambda tf, ipu: _twice(ipu.functional_ops.outlined_function), [6, 5]),
    "outlined with options": (
        lambda tf, ipu: _twice(ipu.functional_ops.outlined_function(unique_sharding=True)), [6, 5],
    ),
    **{f"embedding in {factor}": (_looked_up(factor), [TABLE[[3, 0, 3]]]) for factor in (1, 2, 4)},
    "an elementwise expression": (
        lambda tf, ipu: ipu.custom_ops.codelet_expression_op(
            lambda x, y: (x + y) * (x - y), tf.constant(FIRST), tf.constant(SECOND)),
        [(FIRST + SECOND) * (FIRST - SECOND)],
    ),
    "remap": (lambda tf, ipu: ipu.internal_ops.remap(tf.constant(FIRST)), [FIRST]),
    "remap_deduce": (lambda tf, ipu: ipu.internal_ops.remap_deduce(tf.constant(FIRST)), [FIRST]),
}  # fmt: skip


@pytest.mark.parametrize("what", OPERATIONS)
def test_operations_compute_what_they_say(device: Device, what: str) -> None:
    """Neither outlining nor pieces nor layouts change a value; an expression in Python is computed for all elements."""
    function, expected = OPERATIONS[what]
    device.open()

    results = device.run(lambda: function(device.tf, device.ipu))
    check.equal(actual=len(results), expected=len(expected), what=f"the number of results of {what}")
    for result, values in zip(results, expected):
        check.identical(actual=result, expected=np.float32(values), what=what)


def test_gradients_pass_through_outlined_functions(device: Device) -> None:
    """The gradient of an outlined function is that of the function, in its arguments and in its variables."""
    device.open()
    tf = device.tf
    device.variable("w0", START[1])

    @device.ipu.functional_ops.outlined_function
    def function(x: Any) -> Any:
        return x * x * device.variable("w0", START[1])

    def program() -> Any:
        x, weight = tf.constant(3.0), device.variable("w0", START[1])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(function(x))
        return tape.gradient(y, [x, weight])

    of_x, of_weight = device.run(program)
    w, x = START[1], 3.0

    slopes = {"x": float(of_x), "w0": float(of_weight)}
    check.equal(actual=slopes, expected={"x": 4 * x**3 * w**3, "w0": 3 * x**4 * w**2}, what="the gradients")


@pytest.mark.parametrize("replicas", [1, 4])
def test_outlined_functions_train_in_loops(device: Device, replicas: int) -> None:
    """An outlined layer trains as any other does, on every replica."""
    device.open(replicas)
    v1, queue = device.tf.compat.v1, device.infeed(samples(3 * replicas))
    device.variable("w0", START[0])

    def body(x: Any) -> Any:
        weight = device.variable("w0", START[0])
        loss = device.ipu.functional_ops.outlined_function(lambda value: value * weight)(x)
        opt = device.ipu.optimizers.CrossReplicaOptimizer(v1.train.GradientDescentOptimizer(RATE))
        return opt.minimize(loss, var_list=[weight])

    device.repeat(3, body, queue)

    check_weight(device.read(["w0"])[0], counts(3, replicas=replicas))


def test_tensors_are_printed(device: Device, capfd: Any) -> None:
    """A program prints a tensor, each element of it, whenever it runs."""
    device.open()
    tf = device.tf

    def program() -> Any:
        x = tf.range(1.5, 8.5)
        with tf.control_dependencies([device.ipu.internal_ops.print_tensor(x, "mine")]):
            return tf.identity(x)

    go = device.compile(program)
    capfd.readouterr()
    go()

    check.contains(
        actual=capfd.readouterr().err,
        expected="mine: [1.5 2.5 3.5 4.5 5.5 6.5 7.5]",
        what="the error stream",
    )


@pytest.mark.parametrize(
    "name",
    [
        "all_to_all_op", "application_compile_op", "cross_replica_ops", "custom_ops", "embedding_ops", "functional_ops",
        "internal_ops", "pipelining_ops", "reduce_scatter_op", "replication_ops", "within_replica_ops",
    ],
)  # fmt: skip
def test_a_module_of_operations_has_two_names(ipu: Any, name: str) -> None:
    """A module of operations is the same under the package and under ``ops``."""
    check.equal(actual=getattr(ipu.ops, name), expected=getattr(ipu, name), what=f"ipu.ops.{name}")


@pytest.mark.parametrize(
    "name",
    [
        "autoshard", "gradient_accumulation", "ipu_compiler", "ipu_infeed_queue", "ipu_outfeed_queue", "loops",
        "scopes", "sharding",
    ],
)  # fmt: skip
def test_a_module_beside_the_operations_has_one_name(ipu: Any, name: str) -> None:
    """What feeds, compiles and places programs is a module of the package itself, and not of ``ops``."""
    check.equal(actual=hasattr(ipu, name), expected=True, what=f"whether ipu has {name}")
    check.equal(actual=hasattr(ipu.ops, name), expected=False, what=f"whether ipu.ops has {name}")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("cross_replica_optimizer", "CrossReplicaOptimizer"),
        ("gradient_accumulation_optimizer", "GradientAccumulationOptimizerV2"),
        ("gradient_accumulation_optimizer", "CrossReplicaGradientAccumulationOptimizerV2"),
        ("map_gradient_optimizer", "MapGradientOptimizer"),
        ("sharded_optimizer", "ShardedOptimizer"),
        ("automatic_loss_scaling_optimizer", "AutomaticLossScalingOptimizer"),
        ("ipu_optimizer", "IpuOptimizer"),
    ],
)
def test_an_optimizer_is_found_in_its_module_and_above(ipu: Any, module: str, name: str) -> None:
    """An optimizer is the same in its module, and in the package of optimizers."""
    optimizer = getattr(getattr(ipu, module), name)
    check.equal(actual=getattr(ipu.optimizers, name), expected=optimizer, what=f"ipu.optimizers.{name}")
    check.contains(actual=dir(ipu.optimizers), expected=name, what="dir(ipu.optimizers)")
    check.contains(actual=optimizer.__mro__, expected=ipu.optimizers.IpuOptimizer, what=f"the classes of {name}")


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
