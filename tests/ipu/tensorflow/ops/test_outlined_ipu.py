"""Functions that the device holds once, operations of the user, embeddings and other small operations."""

from __future__ import annotations

from typing import Any

import pytest

from ipu_conformance import check

from ..device_programs import Device
from ..exact import RATE, START, check_weight, counts, samples


@pytest.mark.parametrize("decorator", ["plain", "called"])
def test_an_outlined_function_computes_what_it_did(device: Device, decorator: str) -> None:
    """Calls of an outlined function give what the function gives, however it was decorated."""
    device.open()
    outline = device.ipu.functional_ops.outlined_function
    outline = outline if decorator == "plain" else outline(unique_sharding=True)

    @outline
    def function(a: Any, b: Any) -> Any:
        return a * b, a - b

    def program() -> Any:
        product, difference = function(3.0, 2.0)
        return [*function(product, difference)]

    results = [float(value) for value in device.run(program)]
    check.equal(actual=results, expected=[6, 5], what="the product and the difference")


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


def test_a_function_is_outlined(ipu: Any) -> None:
    """What is not a function is refused."""
    with check.raises(TypeError, match="function", what="outlined_function of 3"):
        ipu.functional_ops.outlined_function(3)


@pytest.mark.parametrize("factor", [1, 2, 4])
def test_an_embedding_is_looked_up(device: Device, factor: int) -> None:
    """Rows of a table come in the order of the ids, however many pieces the table is cut into."""
    table, ids, lookup = samples(12).reshape(4, 3), [3, 0, 3], device.open().ipu.embedding_ops.embedding_lookup

    (rows,) = device.run(lambda: lookup(device.tf.constant(table), ids, serialization_factor=factor))

    check.identical(actual=rows, expected=table[ids], what="the rows")


@pytest.mark.parametrize("factor", [0, 3])
def test_a_table_is_cut_into_equal_pieces(tf: Any, ipu: Any, factor: int) -> None:
    """The factor divides the rows."""
    with check.raises(ValueError, match="serialization_factor", what=f"4 rows in {factor} pieces"):
        ipu.embedding_ops.embedding_lookup(tf.zeros([4, 3]), [0], serialization_factor=factor)


def test_an_expression_becomes_an_operation(device: Device) -> None:
    """An elementwise expression in Python is computed for all elements."""
    codelet, x, y = device.open().ipu.custom_ops.codelet_expression_op, samples(5), samples(10)[5:]

    (values,) = device.run(lambda: codelet(lambda x, y: (x + y) * (x - y), *map(device.tf.constant, (x, y))))

    check.identical(actual=values, expected=(x + y) * (x - y), what="the expression")


@pytest.mark.parametrize("name", ["remap", "remap_deduce"])
def test_layouts_do_not_change_values(device: Device, name: str) -> None:
    """A tensor in another layout holds the same numbers."""
    operation = getattr(device.open().ipu.internal_ops, name)

    (values,) = device.run(lambda: operation(device.tf.constant(samples(3))))

    check.identical(actual=values, expected=samples(3), what="the tensor")


def test_tensors_are_printed(device: Device, capfd: Any) -> None:
    """A program prints a tensor whenever it runs."""
    device.open()
    tf = device.tf

    def program() -> Any:
        x = tf.constant([1.5, 2.5])
        with tf.control_dependencies([device.ipu.internal_ops.print_tensor(x, "mine")]):
            return tf.identity(x)

    go = device.compile(program)
    capfd.readouterr()
    go()

    check.contains(actual=capfd.readouterr().err, expected="mine: [1.5 2.5]", what="the error stream")


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
