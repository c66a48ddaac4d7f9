"""Scopes: what they mark in a graph, and how shards change the number of replicas."""

from __future__ import annotations

import functools
from typing import Any, Callable

import numpy as np
import pytest

from ipu_conformance import check

from ..device_programs import Device
from ..exact import samples


@pytest.mark.parametrize("number", [0, 1])
def test_the_scope_places_on_a_device(tf: Any, ipu: Any, number: int) -> None:
    """Operations made in the scope are placed on the IPU device that it names."""
    with tf.Graph().as_default(), ipu.scopes.ipu_scope(f"/device:IPU:{number}"):
        total = tf.constant(1.0) + 1

    place = total.op.device.rpartition("/")[2]
    check.equal(actual=place, expected=f"device:IPU:{number}", what="the device of the sum")


def test_variables_of_the_scope_are_resources(tf: Any, ipu: Any) -> None:
    """A variable made in the scope is a resource, which can live on the device."""
    with tf.Graph().as_default(), ipu.scopes.ipu_scope("/device:IPU:0"):
        variable = tf.compat.v1.get_variable("made", [2])

    check.equal(actual=variable.op.type, expected="VarHandleOp", what="the type of the variable's operation")


@pytest.mark.parametrize("index", [0, 1, 3])
def test_a_shard_is_marked(tf: Any, ipu: Any, index: int) -> None:
    """An operation made in the scope of a shard is on it; one made outside is on none."""
    with tf.Graph().as_default():
        with ipu.scopes.ipu_shard(index):
            inside = tf.constant(1.0)
        outside = tf.constant(2.0)

    shards = [ipu.sharding.get_shard_from_colocation(tensor.op) for tensor in (inside, outside)]
    check.equal(actual=shards, expected=[index, None], what="the shards of operations inside and outside of the scope")


@pytest.mark.parametrize("index", [-1, "0", True])
def test_a_shard_is_a_number(ipu: Any, index: Any) -> None:
    """IPUs are counted from 0."""
    with check.raises(ValueError, match="index", what=f"the shard {index!r}"), ipu.scopes.ipu_shard(index):
        pass


@pytest.mark.parametrize(
    ("ipus", "shards", "replicas"), [(4, (0,), 4), (4, (0, 1), 2), (4, (0, 2), 1), (4, (3,), 1), (8, (0, 1, 2), 2)]
)
def test_shards_take_ipus_from_replicas(device: Device, ipus: int, shards: Any, replicas: int) -> None:
    """There are IPUs / (highest shard + 1, rounded up to a power of two) replicas."""
    queue, out = device.open(ipus).infeed(samples(2 * ipus)), device.outfeed()

    def body(x: Any) -> Any:
        for shard in shards:
            with device.ipu.scopes.ipu_shard(shard):
                x = x + 1
        return out.enqueue(x)

    device.repeat(2, body, queue)

    expected = samples(2 * replicas).reshape((2, replicas) if replicas > 1 else (2,)) + len(shards)
    check.identical(actual=device.dequeue(out), expected=expected, what="the outfeed by iteration and replica")


def test_a_shard_that_does_not_fit_is_refused(device: Device) -> None:
    """A program whose shards need more IPUs than the device has is refused."""

    def program() -> Any:
        with device.ipu.scopes.ipu_shard(2):
            return device.tf.constant(1.0) + 1

    sentence = "2 IPUs attached, however the current model requires a multiple of 4 IPUs"
    with check.raises(ValueError, match=sentence, what="shard 2 on 2 IPUs"):
        device.open(2).run(program)


def test_what_is_outside_of_compilation_still_computes(device: Device) -> None:
    """A program may compute on the host in its middle."""

    def program() -> Any:
        x = device.tf.constant(3.0)
        with device.ipu.scopes.outside_compilation_scope():
            x = x * x
        return x + 1

    check.equal(actual=float(device.open().run(program)[0]), expected=10.0, what="3 * 3 on the host, plus 1")


def test_outside_of_compilation_is_inside_of_a_program(tf: Any, ipu: Any) -> None:
    """The scope is refused where nothing is compiled."""
    name = "outside_compilation_scope"
    with check.raises(ValueError, match=name, what=f"{name} outside of a program"), getattr(ipu.scopes, name)():
        pass


def test_a_graph_alone_compiles_nothing(tf: Any, ipu: Any) -> None:
    """In a graph of TensorFlow 1, too, the scope is refused unless a program is being built."""
    name = "outside_compilation_scope"
    refused = check.raises(ValueError, match=name, what=f"{name} in a graph")
    with tf.Graph().as_default(), refused, getattr(ipu.scopes, name)():
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
    """An operation made inside carries the attribute, one made afterwards does not."""
    with tf.Graph().as_default():
        with scope(ipu.scopes):
            inside = tf.constant(1.0)
        outside = tf.constant(1.0)

    name = "_XlaFrontendAttributes"
    check.contains(actual=inside.op.get_attr(name), expected=text, what="the attributes inside of the scope")
    check.equal(actual=ipu.sharding.has_attr(outside.op, name), expected=False, what=f"{name} outside of the scope")


@pytest.mark.emulator
def test_attributes_add_up(tf: Any, ipu: Any) -> None:
    """Nested scopes add their attributes, and an inner one replaces an outer one of the same name."""
    scopes = ipu.scopes
    outer, inner = scopes.stochastic_rounding(True), scopes.stochastic_rounding(False)
    with tf.Graph().as_default(), outer, scopes.partials_type("half"), inner:
        constant = tf.constant(1.0)

    expected = b"PARTIALS_TYPE=half;STOCHASTIC_ROUNDING=THREESTATE_OFF"
    check.equal(actual=constant.op.get_attr("_XlaFrontendAttributes"), expected=expected, what="the attributes")


def test_a_type_of_partials_is_known(ipu: Any) -> None:
    """Partial sums are held in float16 or float32."""
    with check.raises(ValueError, match="double", what="the partials_type double"):
        ipu.scopes.partials_type("double")


@pytest.mark.parametrize("shards", [2, 4])
def test_a_graph_is_sharded_by_itself(tf: Any, ipu: Any, shards: int) -> None:
    """automatic_sharding spreads the operations between an input and a loss over all shards, in their order."""
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [])
        value = functools.reduce(lambda value, _: tf.sin(value), range(8), x)
        ipu.autoshard.automatic_sharding(shards, x, value)
        placed = [ipu.sharding.get_shard_from_colocation(op) for op in value.graph.get_operations() if op.type == "Sin"]

    right = placed == sorted(placed) and set(placed) == set(range(shards))
    check.holds(right, f"8 operations in a row are on the shards {placed}, not on all {shards} in order.")


def test_a_program_that_shards_itself_leaves_the_other_ipus_to_replicas(tf: Any, ipu: Any, configure: Any) -> None:
    """A compiled program finds its own inputs, and its shards count: two of them on eight IPUs make four replicas."""
    configure(8)

    def program(x: Any) -> Any:
        value = functools.reduce(lambda value, _: value + 1, range(6), x)
        ipu.autoshard.automatic_sharding(2, x, value)
        return ipu.cross_replica_ops.cross_replica_sum(value)

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [])
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            (total,) = ipu.ipu_compiler.compile(program, [x])
        found = session.run(total, {x: 0.5})

    check.identical(actual=found, expected=np.float32(4 * 6.5), what="the sum over replicas")


def test_shards_spread_to_what_reads_from_them(tf: Any, ipu: Any) -> None:
    """propagate_sharding puts an operation without a shard on the shard of its input."""
    with tf.Graph().as_default() as graph:
        with ipu.scopes.ipu_shard(1):
            x = tf.constant(1.0)
        y = x + 1
        ipu.sharding.propagate_sharding(graph)

    check.equal(actual=ipu.sharding.get_shard_from_colocation(y.op), expected=1, what="the shard of x + 1")
    for op in (x.op, y.op):
        check.contains(actual=ipu.sharding.dependencies([y]), expected=op, what="the dependencies of x + 1")
