"""Collectives: what replicas compute together, and its gradients."""

from __future__ import annotations

import functools
import math
from typing import Any, Callable, Dict, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from ..device_programs import Device

WIDTH = 12
REDUCTIONS: Dict[str, Callable[..., Any]] = {"cross_replica_sum": np.sum, "cross_replica_mean": np.mean}
GROUPS = {1: (None,), 6: (None, 3, 2, 1)}
SCATTERED: Dict[str, Any] = {
    "COLLECTIVE_OP_ADD": np.sum, "COLLECTIVE_OP_MEAN": np.mean, "COLLECTIVE_OP_LOCAL": None,
    "COLLECTIVE_OP_MIN": np.min, "COLLECTIVE_OP_MAX": np.max,
}  # fmt: skip
PRODUCT = "COLLECTIVE_OP_MUL"
LARGE = 2**24 + 1
"""An integer that float32 does not hold."""
Record = Dict[str, np.ndarray]


def rows_of(replicas: int) -> np.ndarray:
    """A vector for each replica; multiples of six, so that sums and means of so many are exact."""
    return 6 * np.square(np.arange(1, replicas * WIDTH + 1, dtype=np.float32)).reshape(replicas, WIDTH)


def by_replica(device: Device, replicas: int, function: Callable[[Any], Any]) -> Any:
    """What a function of each replica's vector gives, by replica."""
    queue, out = device.open(replicas).infeed(rows_of(replicas)), device.outfeed(last=True)
    device.repeat(1, lambda x: out.enqueue(function(x)), queue)
    return device.tf.nest.map_structure(lambda value: value if replicas > 1 else value[None], device.dequeue(out))


def collectives(device: Device, replicas: int, x: Any) -> Dict[str, Any]:
    """What every collective gives for a vector of each replica, by name."""
    tf, ipu, cross = device.tf, device.ipu, device.ipu.cross_replica_ops
    index = tf.cast(ipu.replication_ops.replication_index(), tf.float32)
    integers = tf.cast(x, tf.int32) + LARGE
    results = {
        "replication_index": index,
        "all_gather": ipu.all_to_all_op.all_gather(x, replicas),
        "all_gather of two": ipu.all_to_all_op.all_gather([x, x + 1], replicas),
        "all_gather of integers": ipu.all_to_all_op.all_gather(integers, replicas),
        "cross_replica_sum of integers": cross.cross_replica_sum(integers),
        "all_to_all": ipu.all_to_all_op.all_to_all(x, 0, 0, replicas),
        "all_to_all over two dimensions": ipu.all_to_all_op.all_to_all(tf.reshape(x, [2, -1]), 1, 0, replicas),
        "assume_equal_across_replicas": cross.assume_equal_across_replicas([x, 2 * x])[1],
        **{op: ipu.reduce_scatter_op.reduce_scatter(x[:7], replicas, op) for op in SCATTERED},
        PRODUCT: ipu.reduce_scatter_op.reduce_scatter(tf.fill([7], index + 1), replicas, PRODUCT),
        "reduce_scatter of two": ipu.reduce_scatter_op.reduce_scatter([x, x + 1], replicas),
    }
    differentiated = {
        "all_gather": lambda own: ipu.all_to_all_op.all_gather(own, replicas),
        "all_to_all": lambda own: ipu.all_to_all_op.all_to_all(own, 0, 0, replicas),
    }
    for name in REDUCTIONS:
        for group in GROUPS[replicas]:
            differentiated[f"{name} over {group}"] = functools.partial(getattr(cross, name), replica_group_size=group)
    for name, collective in differentiated.items():
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = collective(x)
            places = tf.cast(tf.range(tf.size(value)), tf.float32)
            weighted = value * tf.reshape(incoming(places, index), tf.shape(value))
        results.setdefault(name, value)
        results[f"the gradient of {name}"] = tape.gradient(weighted, x)
    return results


def incoming(places: Any, replica: Any) -> Any:
    """The gradients that come to so many places of what a replica gets: multiples of six, another for each replica."""
    return 6.0 * (places + 1) * (replica + 1) ** 2


def incoming_rows(replicas: int, places: int) -> np.ndarray:
    """The same, by replica."""
    return np.stack([incoming(np.arange(places, dtype=np.float32), replica) for replica in range(replicas)])


@pytest.fixture(scope="session")
def records() -> Dict[Tuple[str, int], Record]:
    """The runs of this session, by mode and number of replicas."""
    return {}


@pytest.fixture(params=sorted(GROUPS))
def replicas(request: Any) -> int:
    """The number of replicas."""
    return int(request.param)


@pytest.fixture
def record(device: Device, replicas: int, records: Dict[Tuple[str, int], Record]) -> Record:
    """What one program with every collective gave, by name and then by replica; all cases read the same run."""
    run = (device.mode, replicas)
    if run not in records:
        records[run] = by_replica(device, replicas, lambda x: collectives(device, replicas, x))
    return records[run]


def grouped(rows: np.ndarray, size: int, reduce: Callable[..., Any]) -> np.ndarray:
    """The reduction of each run of ``size`` consecutive rows, once for every member."""
    return np.repeat(reduce(rows.reshape(-1, size, rows.shape[1]), axis=1), size, axis=0)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_replicas_reduce(replicas: int, record: Record, name: str) -> None:
    """Sums and means are over all replicas, or over groups of consecutive ones."""
    for group in GROUPS[replicas]:
        what, expected = f"{name} over {group}", grouped(rows_of(replicas), group or replicas, REDUCTIONS[name])
        check.identical(actual=record[what], expected=expected, what=f"{what}, by replica")
    what = f"{name} of integers"
    if what in record:
        expected = grouped(rows_of(replicas).astype(np.int64) + LARGE, replicas, np.sum).astype(np.int32)
        check.identical(actual=record[what], expected=expected, what=f"{what}, by replica")


@pytest.mark.parametrize("name", REDUCTIONS)
def test_gradients_are_reduced_alike(replicas: int, record: Record, name: str) -> None:
    """The gradient of a reduction is the same reduction, over the same groups, of the gradients that come in."""
    for group in GROUPS[replicas]:
        what = f"the gradient of {name} over {group}"
        expected = grouped(incoming_rows(replicas, WIDTH), group or replicas, REDUCTIONS[name])
        check.identical(actual=record[what], expected=expected, what=f"{what}, by replica")


def test_gradients_go_back_to_their_replicas(replicas: int, record: Record) -> None:
    """A replica gets the sum of the gradients of what others gathered from it, or those of the pieces that it sent."""
    gathered = incoming_rows(replicas, replicas * WIDTH).reshape(replicas, replicas, WIDTH).sum(axis=0)
    sent = incoming_rows(replicas, WIDTH).reshape(replicas, replicas, -1).transpose(1, 0, 2).reshape(replicas, WIDTH)
    for name, expected in (("all_gather", gathered), ("all_to_all", sent)):
        what = f"the gradient of {name}"
        check.identical(actual=record[what], expected=expected, what=f"{what}, by replica")


@pytest.mark.parametrize("group", [0, -2, 1.5, True])
def test_a_group_is_a_number_of_replicas(ipu: Any, group: Any) -> None:
    """A group has at least one replica."""
    with check.raises(ValueError, match="replica_group_size", what=f"a replica_group_size of {group}"):
        ipu.cross_replica_ops.cross_replica_sum(1.0, group)


def test_replicas_are_numbered(replicas: int, record: Record) -> None:
    """The index of a replica is its number, from 0."""
    expected = np.arange(replicas, dtype=np.float32)
    check.identical(actual=record["replication_index"], expected=expected, what="replication_index, by replica")


def test_all_gather_stacks(replicas: int, record: Record) -> None:
    """Every replica gets the tensors of all under a new leading axis."""
    expected = np.stack([rows_of(replicas)] * replicas)
    check.identical(actual=record["all_gather"], expected=expected, what="all_gather, by replica")
    for more, values in enumerate(record["all_gather of two"]):
        check.identical(actual=values, expected=expected + more, what=f"all_gather of list item {more}, by replica")
    integers = expected.astype(np.int32) + np.int32(LARGE)
    check.identical(actual=record["all_gather of integers"], expected=integers, what="all_gather of integers")


def test_all_to_all_transposes(replicas: int, record: Record) -> None:
    """Piece s of replica r becomes piece r of replica s."""
    expected = rows_of(replicas).reshape(replicas, replicas, -1).transpose(1, 0, 2).reshape(replicas, WIDTH)
    check.identical(actual=record["all_to_all"], expected=expected, what="all_to_all, by replica")
    pieces = rows_of(replicas).reshape(replicas, 2, replicas, -1).transpose(2, 0, 1, 3)
    name = "all_to_all over two dimensions"
    expected = pieces.reshape(replicas, 2 * replicas, -1)
    check.identical(actual=record[name], expected=expected, what=f"{name}, by replica")


def test_equal_values_pass(replicas: int, record: Record) -> None:
    """Assuming values to be equal changes nothing: every replica keeps its own."""
    name = "assume_equal_across_replicas"
    check.identical(actual=record[name], expected=2 * rows_of(replicas), what=f"{name}, by replica")


@pytest.mark.parametrize("op", SCATTERED)
def test_reduce_scatter_leaves_pieces(replicas: int, record: Record, op: str) -> None:
    """Each replica keeps its piece of the reduced vector, or of its own; zeros fill the last of several pieces."""
    reduce, width = SCATTERED[op], -(-7 // replicas)

    rows = np.pad(rows_of(replicas)[:, :7], [[0, 0], [0, replicas * width - 7]])
    whole = rows if reduce is None else grouped(rows, replicas, reduce)
    expected = np.stack([whole[replica, width * replica :][:width] for replica in range(replicas)])
    check.identical(actual=record[op], expected=expected, what=f"reduce_scatter by {op}, by replica")


def test_reduce_scatter_multiplies(replicas: int, record: Record) -> None:
    """The product of what replicas bring, each one more than its number, is left in pieces."""
    width = -(-7 // replicas)
    expected = np.pad(np.full(7, math.factorial(replicas), np.float32), [0, replicas * width - 7])
    check.identical(actual=record[PRODUCT], expected=expected.reshape(replicas, width), what=f"{PRODUCT}, by replica")


def test_reduce_scatter_takes_a_list(replicas: int, record: Record) -> None:
    """Every tensor of a list is reduced and scattered alone."""
    for more, values in enumerate(record["reduce_scatter of two"]):
        expected = (rows_of(replicas) + more).sum(axis=0).reshape(replicas, -1)
        check.identical(actual=values, expected=expected, what=f"reduce_scatter of list item {more}, by replica")


@pytest.mark.emulator
@pytest.mark.parametrize("operation", ["all_gather", "all_to_all", "reduce_scatter"])
def test_another_number_of_replicas_is_refused(device: Device, operation: str) -> None:
    """The number of replicas in the call is the one that the program runs on."""
    calls = {
        "all_gather": lambda x: device.ipu.all_to_all_op.all_gather(x, 4),
        "all_to_all": lambda x: device.ipu.all_to_all_op.all_to_all(x, 0, 0, 4),
        "reduce_scatter": lambda x: device.ipu.reduce_scatter_op.reduce_scatter(x, 4),
    }

    with check.raises(ValueError, match="given 4 replicas, and the program runs on 2", what=f"{operation} over 4 of 2"):
        by_replica(device, 2, calls[operation])


@pytest.mark.parametrize(
    ("shape", "op", "text"), [((2, 2), "COLLECTIVE_OP_ADD", "vector"), ((2,), "add", "COLLECTIVE_OP_ADD")]
)
def test_reduce_scatter_takes_vectors_and_known_reductions(ipu: Any, shape: Any, op: str, text: str) -> None:
    """A tensor of two dimensions has no pieces in order, and reductions have the vendor's names."""
    with check.raises(ValueError, match=text, what=f"reduce_scatter by {op} of a tensor of shape {shape}"):
        ipu.reduce_scatter_op.reduce_scatter(np.ones(shape, np.float32), 1, op)


SHARDS = np.square(np.arange(3 * 4 * 5, dtype=np.float32)).reshape(3, 4, 5) * 3
WITHIN: Dict[str, Tuple[Dict[str, Any], Any]] = {
    "all_gather": ({}, [np.concatenate(SHARDS)] * 3),
    "all_gather-axis": ({"axis": 1}, [np.concatenate(SHARDS, axis=1)] * 3),
    "all_reduce": ({"op": "COLLECTIVE_OP_ADD"}, [SHARDS.sum(axis=0)] * 3),
    "all_reduce-mean": ({"op": "COLLECTIVE_OP_MEAN"}, [SHARDS.mean(axis=0)] * 3),
    "reduce_scatter": (
        {"op": "COLLECTIVE_OP_ADD"}, np.split(np.pad(SHARDS.sum(axis=0), [[0, 2], [0, 0]]), 3),
    ),
    "reduce_scatter-mean": (
        {"op": "COLLECTIVE_OP_MEAN"}, np.split(np.pad(SHARDS.mean(axis=0), [[0, 2], [0, 0]]), 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WITHIN)
def test_ipus_of_a_replica_exchange_shards(ipu: Any, name: str) -> None:
    """Within a replica shards are gathered, reduced, or reduced and scattered over its IPUs."""
    settings, expected = WITHIN[name]
    actual = getattr(ipu.within_replica_ops, name.partition("-")[0])(list(SHARDS), **settings)

    check.equal(actual=len(actual), expected=len(SHARDS), what="the number of shards")
    for place, (shard, values) in enumerate(zip(actual, expected)):
        check.identical(actual=shard.numpy(), expected=values, what=f"shard {place} of within_replica_ops.{name}")
