"""Scopes: what they mark in a graph, and how shards change the number of replicas."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Dict, List, Tuple

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


@pytest.mark.parametrize(
    ("ipus", "shards", "replicas"), [(4, (0,), 4), (4, (0, 1), 2), (4, (0, 2), 1), (4, (3,), 1), (8, (0, 1, 2), 2)]
)
def test_shards_take_ipus_from_replicas(device: Device, ipus: int, shards: Any, replicas: int) -> None:
    """There are IPUs / (highest shard + 1, rounded up to a power of two) replicas."""

    def body(x: Any) -> Any:
        for shard in shards:
            with device.ipu.scopes.ipu_shard(shard):
                x = x + 1
        return x

    outfed = device.open(ipus).outfed(2, body, samples(2 * ipus))

    expected = samples(2 * replicas).reshape((2, replicas) if replicas > 1 else (2,)) + len(shards)
    check.identical(actual=outfed, expected=expected, what="the outfeed by iteration and replica")


def test_what_is_outside_of_compilation_still_computes(device: Device) -> None:
    """A program may compute on the host in its middle."""

    def program() -> Any:
        x = device.tf.constant(3.0)
        with device.ipu.scopes.outside_compilation_scope():
            x = x * x
        return x + 1

    check.equal(actual=float(device.open().run(program)[0]), expected=10.0, what="3 * 3 on the host, plus 1")


ON, OFF, HALF = ("stochastic_rounding", True), ("stochastic_rounding", False), ("partials_type", "half")
ATTRIBUTES: Dict[str, Tuple[List[Tuple[Any, ...]], bytes]] = {
    "rounding": ([ON], b"STOCHASTIC_ROUNDING=THREESTATE_ON"),
    "no-rounding": ([OFF], b"STOCHASTIC_ROUNDING=THREESTATE_OFF"),
    "partials": ([HALF], b"PARTIALS_TYPE=half"),
    "attribute": ([("frontend_attribute", "name", "value")], b"name=value"),
    "nested": ([ON, HALF, OFF], b"PARTIALS_TYPE=half;STOCHASTIC_ROUNDING=THREESTATE_OFF"),
}


@pytest.mark.emulator
@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_are_marked(tf: Any, ipu: Any, name: str) -> None:
    """An operation carries the attributes of all scopes around it, the innermost of each name, and none afterwards."""
    scopes, expected = ATTRIBUTES[name]
    with tf.Graph().as_default():
        with contextlib.ExitStack() as stack:
            for scope, *values in scopes:
                stack.enter_context(getattr(ipu.scopes, scope)(*values))
            inside = tf.constant(1.0)
        outside = tf.constant(1.0)

    attribute = "_XlaFrontendAttributes"
    check.equal(actual=inside.op.get_attr(attribute), expected=expected, what="the attributes inside of the scopes")
    check.equal(actual=ipu.sharding.has_attr(outside.op, attribute), expected=False, what="the attributes outside")


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


def test_a_program_that_shards_itself_leaves_the_other_ipus_to_replicas(tf: Any, ipu: Any, graph: Device) -> None:
    """A compiled program finds its own inputs, and its shards count: two of them on eight IPUs make four replicas."""
    session, x = graph.open(8).session, tf.compat.v1.placeholder(tf.float32, [])

    def program(x: Any) -> Any:
        value = functools.reduce(lambda value, _: value + 1, range(6), x)
        ipu.autoshard.automatic_sharding(2, x, value)
        return ipu.cross_replica_ops.cross_replica_sum(value)

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
