"""Functions that the device holds once, operations of the user, embeddings and other small operations."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from ipu_conformance import check

from ..device_programs import Device
from ..exact import RATE, START, samples


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

    assert [float(value) for value in device.run(program)] == [6.0, 5.0]


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

    assert float(of_x) == 4 * x**3 * w**3
    assert float(of_weight) == 3 * x**4 * w**2


@pytest.mark.parametrize("replicas", [1, 2])
def test_outlined_functions_train_in_loops(device: Device, replicas: int) -> None:
    """A layer that is outlined trains like one that is not, on every replica."""
    device.open(replicas)
    v1, queue = device.tf.compat.v1, device.infeed(samples(2 * replicas))
    device.variable("w0", START[0])

    def body(x: Any) -> Any:
        weight = device.variable("w0", START[0])
        loss = device.ipu.functional_ops.outlined_function(lambda value: value * weight)(x)
        opt = device.ipu.optimizers.CrossReplicaOptimizer(v1.train.GradientDescentOptimizer(RATE))
        return opt.minimize(loss, var_list=[weight])

    device.repeat(2, body, queue)

    assert float(device.read(["w0"])[0]) == START[0] - RATE * float(samples(2 * replicas).sum()) / replicas


def test_a_function_is_outlined(ipu: Any) -> None:
    """Something else is refused."""
    with pytest.raises(TypeError, match="function"):
        ipu.functional_ops.outlined_function(3)


@pytest.mark.parametrize("factor", [1, 2, 4])
def test_an_embedding_is_looked_up(device: Device, factor: int) -> None:
    """Rows of a table come in the order of their numbers, in however many pieces the table is looked through."""
    device.open()
    table = samples(12).reshape(4, 3)
    lookup = device.ipu.embedding_ops.embedding_lookup

    (got,) = device.run(
        lambda: lookup(device.tf.constant(table), device.tf.constant([3, 0, 3]), serialization_factor=factor)
    )

    check.identical(actual=got, expected=table[[3, 0, 3]], what="the rows")


@pytest.mark.parametrize("factor", [0, 3])
def test_a_table_is_cut_into_equal_pieces(tf: Any, ipu: Any, factor: int) -> None:
    """The factor divides the rows."""
    with pytest.raises(ValueError, match="serialization_factor"):
        ipu.embedding_ops.embedding_lookup(tf.zeros([4, 3]), [0], serialization_factor=factor)


def test_an_expression_becomes_an_operation(device: Device) -> None:
    """An elementwise expression in Python is computed for all elements."""
    device.open()
    tf = device.tf

    (got,) = device.run(
        lambda: device.ipu.custom_ops.codelet_expression_op(
            lambda x, y: (x + y) * (x - y), tf.constant([5.0, 3.0]), tf.constant([2.0, 4.0])
        )
    )

    assert got.tolist() == [21.0, -7.0]


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("custom_ops", "precompiled_user_op"),
        ("custom_ops", "cpu_user_op"),
        ("embedding_ops", "create_host_embedding"),
        ("embedding_ops", "HostEmbedding"),
        ("application_compile_op", "experimental_application_compile_op"),
    ],
)
def test_what_needs_the_sdk_is_refused(ipu: Any, module: str, name: str) -> None:
    """What only the vendor's runtime can do is refused by name."""
    with pytest.raises(NotImplementedError, match=f"{name} is not available"):
        getattr(getattr(ipu, module), name)("anything")


@pytest.mark.parametrize("name", ["remap", "remap_deduce"])
def test_layouts_do_not_change_values(device: Device, name: str) -> None:
    """A tensor that is laid out anew holds the same numbers."""
    device.open()
    operation = getattr(device.ipu.internal_ops, name)

    (got,) = device.run(lambda: operation(device.tf.constant(samples(3))))

    check.identical(actual=got, expected=samples(3), what="the tensor")


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

    assert "mine: [1.5 2.5]" in capfd.readouterr().err


@pytest.mark.parametrize(
    "name",
    [
        "all_to_all_op", "application_compile_op", "cross_replica_ops", "custom_ops", "embedding_ops", "functional_ops",
        "internal_ops", "pipelining_ops", "reduce_scatter_op", "replication_ops", "within_replica_ops",
    ],
)  # fmt: skip
def test_a_module_of_operations_has_two_names(ipu: Any, name: str) -> None:
    """A module of operations is the same under the package and under ``ops``."""
    assert getattr(ipu.ops, name) is getattr(ipu, name)


@pytest.mark.parametrize(
    "name",
    [
        "autoshard", "gradient_accumulation", "ipu_compiler", "ipu_infeed_queue", "ipu_outfeed_queue", "loops",
        "scopes", "sharding",
    ],
)  # fmt: skip
def test_a_module_beside_the_operations_has_one_name(ipu: Any, name: str) -> None:
    """What feeds, compiles and places programs is a module of the package itself, and not of ``ops``."""
    assert importlib.import_module(f"tensorflow.python.ipu.{name}") is getattr(ipu, name)
    assert not hasattr(ipu.ops, name)


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
    assert getattr(getattr(ipu, module), name) is getattr(ipu.optimizers, name)
    assert name in dir(ipu.optimizers)
    assert issubclass(getattr(ipu.optimizers, name), ipu.optimizers.IpuOptimizer)
