"""Scopes: what they mark in a graph, and how shards change the number of replicas."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from ..device_programs import Device
from ..exact import samples


@pytest.mark.parametrize("number", [0, 1])
def test_the_scope_places_on_a_device(tf: Any, ipu: Any, number: int) -> None:
    """What is made inside belongs to the named IPU device."""
    with tf.Graph().as_default(), ipu.scopes.ipu_scope(f"/device:IPU:{number}"):
        total = tf.constant(1.0) + 1

    assert total.op.device.endswith(f"device:IPU:{number}")


def test_variables_of_the_scope_are_resources(tf: Any, ipu: Any) -> None:
    """A variable that is made in the scope can live on the device."""
    with tf.Graph().as_default(), ipu.scopes.ipu_scope("/device:IPU:0"):
        variable = tf.compat.v1.get_variable("made", [2])

    assert variable.op.type == "VarHandleOp"


@pytest.mark.parametrize("index", [0, 1, 3])
def test_a_shard_is_marked(tf: Any, ipu: Any, index: int) -> None:
    """An operation made in a shard's scope knows its IPU; one made outside has none."""
    with tf.Graph().as_default():
        with ipu.scopes.ipu_shard(index):
            inside = tf.constant(1.0)
        outside = tf.constant(2.0)

    assert ipu.sharding.get_shard_from_colocation(inside.op) == index
    assert ipu.sharding.get_shard_from_colocation(outside.op) is None


@pytest.mark.parametrize("index", [-1, "0", True])
def test_a_shard_is_a_number(ipu: Any, index: Any) -> None:
    """IPUs are counted from 0."""
    with pytest.raises(ValueError, match="index"), ipu.scopes.ipu_shard(index):
        pass


@pytest.mark.parametrize(
    ("ipus", "shards", "replicas"), [(4, (0,), 4), (4, (0, 1), 2), (4, (0, 2), 1), (4, (3,), 1), (8, (0, 1, 2), 2)]
)
def test_shards_take_ipus_from_replicas(device: Device, ipus: int, shards: Any, replicas: int) -> None:
    """There are IPUs / (highest shard + 1, rounded up to a power of two) replicas."""
    device.open(ipus)
    queue, out = device.infeed(samples(2 * ipus)), device.outfeed()

    def body(x: Any) -> Any:
        for shard in shards:
            with device.ipu.scopes.ipu_shard(shard):
                x = x + 1
        return out.enqueue(x)

    device.repeat(2, body, queue)

    assert device.dequeue(out).shape == ((2, replicas) if replicas > 1 else (2,))


def test_a_shard_that_does_not_fit_is_refused(device: Device) -> None:
    """A device has a whole number of replicas, or the program is refused."""
    device.open(2)

    def program() -> Any:
        with device.ipu.scopes.ipu_shard(2):
            return device.tf.constant(1.0) + 1

    with pytest.raises(ValueError, match="2 IPUs attached, however the current model requires a multiple of 4 IPUs"):
        device.run(program)


def test_what_is_outside_of_compilation_still_computes(device: Device) -> None:
    """The host computes in the middle of a program."""
    device.open()

    def program() -> Any:
        x = device.tf.constant(3.0)
        with device.ipu.scopes.outside_compilation_scope():
            x = x * x
        return x + 1

    assert float(device.run(program)[0]) == 10.0


def test_outside_of_compilation_is_inside_of_a_program(tf: Any, ipu: Any) -> None:
    """There is nothing to be outside of where nothing is compiled."""
    with pytest.raises(ValueError, match="outside_compilation_scope"), ipu.scopes.outside_compilation_scope():
        pass


@pytest.mark.parametrize(
    ("scope", "text"),
    [
        (lambda scopes: scopes.stochastic_rounding(True), b"STOCHASTIC_ROUNDING=THREESTATE_ON"),
        (lambda scopes: scopes.stochastic_rounding(False), b"STOCHASTIC_ROUNDING=THREESTATE_OFF"),
        (lambda scopes: scopes.partials_type("half"), b"PARTIALS_TYPE=half"),
        (lambda scopes: scopes.frontend_attribute("name", "value"), b"name=value"),
    ],
    ids=["rounding", "no-rounding", "partials", "attribute"],
)
@pytest.mark.emulator
def test_attributes_are_marked(tf: Any, ipu: Any, scope: Callable[..., Any], text: bytes) -> None:
    """An operation made inside carries the attribute, one made after does not."""
    with tf.Graph().as_default():
        with scope(ipu.scopes):
            inside = tf.constant(1.0)
        outside = tf.constant(1.0)

    assert text in inside.op.get_attr("_XlaFrontendAttributes")
    assert not ipu.sharding.has_attr(outside.op, "_XlaFrontendAttributes")


@pytest.mark.emulator
def test_attributes_add_up(tf: Any, ipu: Any) -> None:
    """Scopes inside scopes add their attributes, and the inner one of the same name counts."""
    scopes = ipu.scopes
    outer, inner = scopes.stochastic_rounding(True), scopes.stochastic_rounding(False)
    with tf.Graph().as_default(), outer, scopes.partials_type("half"), inner:
        constant = tf.constant(1.0)

    assert constant.op.get_attr("_XlaFrontendAttributes") == b"PARTIALS_TYPE=half;STOCHASTIC_ROUNDING=THREESTATE_OFF"


def test_a_type_of_partials_is_known(ipu: Any) -> None:
    """Partial sums are held in float16 or float32."""
    with pytest.raises(ValueError, match="double"):
        ipu.scopes.partials_type("double")


@pytest.mark.parametrize("shards", [2, 4])
def test_a_graph_is_sharded_by_itself(tf: Any, ipu: Any, shards: int) -> None:
    """Operations between an input and a loss are spread over all shards in the order of the graph."""
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [])
        value = x
        for _ in range(8):
            value = tf.sin(value)
        ipu.autoshard.automatic_sharding(shards, x, value)
        placed = [ipu.sharding.get_shard_from_colocation(op) for op in value.graph.get_operations() if op.type == "Sin"]

    assert placed == sorted(placed)
    assert set(placed) == set(range(shards))


def test_shards_spread_to_what_reads_from_them(tf: Any, ipu: Any) -> None:
    """An operation that is not placed goes where its input is."""
    with tf.Graph().as_default() as graph:
        with ipu.scopes.ipu_shard(1):
            x = tf.constant(1.0)
        y = x + 1
        ipu.sharding.propagate_sharding(graph)

    assert ipu.sharding.get_shard_from_colocation(y.op) == 1
    assert {op.name for op in ipu.sharding.dependencies([y])} >= {x.op.name, y.op.name}
