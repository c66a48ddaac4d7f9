"""Collectives: what replicas compute together, and its gradients."""

from __future__ import annotations

from typing import Any, Callable, Dict

import numpy as np
import pytest

from ipu_conformance import check

from ..device_programs import Device

REPLICAS, WIDTH = 4, 3
REDUCTIONS: Dict[str, Callable[..., Any]] = {"cross_replica_sum": np.sum, "cross_replica_mean": np.mean}


def rows_of(replicas: int, width: int = WIDTH) -> np.ndarray:
    """A vector for each replica; whole numbers, so that sums and means of four are exact."""
    return np.square(np.arange(1, replicas * width + 1, dtype=np.float32)).reshape(replicas, width)


def by_replica(device: Device, function: Callable[[Any], Any], replicas: int = REPLICAS, width: int = WIDTH) -> Any:
    """What a function of each replica's vector gives, by replica."""
    queue, out = device.open(replicas).infeed(rows_of(replicas, width)), device.outfeed(last=True)
    device.repeat(1, lambda x: out.enqueue(function(x)), queue)
    return device.tf.nest.map_structure(lambda value: value if replicas > 1 else value[None], device.dequeue(out))


def grouped(rows: np.ndarray, size: int, reduce: Callable[..., Any]) -> np.ndarray:
    """The reduction of each run of ``size`` consecutive rows, once for every member."""
    return np.repeat(reduce(rows.reshape(-1, size, rows.shape[1]), axis=1), size, axis=0)


@pytest.mark.parametrize(("replicas", "groups"), [(1, (None,)), (4, (None, 2, 1))], ids=["1", "4"])
def test_replicas_reduce(device: Device, replicas: int, groups: Any) -> None:
    """Sums and means are over all replicas, or over groups of consecutive ones."""
    calls, ops = [(name, group) for name in REDUCTIONS for group in groups], device.ipu.cross_replica_ops
    results = by_replica(device, lambda x: [getattr(ops, name)(x, group) for name, group in calls], replicas)

    check.equal(actual=len(results), expected=len(calls), what="the number of results")
    for (name, group), actual in zip(calls, results):
        expected = grouped(rows_of(replicas), group or replicas, REDUCTIONS[name])
        check.identical(actual=actual, expected=expected, what=f"{name} over groups of {group or replicas}, by replica")


def test_gradients_are_reduced_alike(device: Device) -> None:
    """The gradient of a reduction is the same reduction of the replicas' incoming gradients 1, 2, 3 and 4."""
    tf = device.tf

    def gradient(x: Any, name: str) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            incoming = tf.cast(device.ipu.replication_ops.replication_index() + 1, tf.float32)
            value = getattr(device.ipu.cross_replica_ops, name)(x) * incoming
        return tape.gradient(value, x)

    results = by_replica(device, lambda x: [gradient(x, name) for name in REDUCTIONS])

    expected = np.stack([np.full((REPLICAS, WIDTH), value, np.float32) for value in (10, 2.5)])
    check.identical(actual=np.asarray(results), expected=expected, what="the gradients of sum and mean, by replica")


@pytest.mark.parametrize("group", [0, -2, 1.5, True])
def test_a_group_is_a_number_of_replicas(ipu: Any, group: Any) -> None:
    """A group has at least one replica."""
    with check.raises(ValueError, match="replica_group_size", what=f"a replica_group_size of {group}"):
        ipu.cross_replica_ops.cross_replica_sum(1.0, group)


def test_replicas_are_numbered(device: Device) -> None:
    """The index of a replica is its number, from 0."""
    tf, index = device.tf, device.ipu.replication_ops.replication_index
    actual = by_replica(device, lambda x: tf.cast(index(), tf.float32))

    check.identical(actual=actual, expected=np.arange(REPLICAS, dtype=np.float32), what="replication_index, by replica")


@pytest.mark.parametrize("replicas", [1, 4])
def test_all_gather_stacks(device: Device, replicas: int) -> None:
    """Every replica gets the tensors of all under a new leading axis."""
    actual = by_replica(device, lambda x: device.ipu.all_to_all_op.all_gather(x, replicas), replicas)

    check.identical(actual=actual, expected=np.stack([rows_of(replicas)] * replicas), what="all_gather, by replica")


def test_all_to_all_transposes(device: Device) -> None:
    """Piece s of replica r becomes piece r of replica s."""
    actual = by_replica(device, lambda x: device.ipu.all_to_all_op.all_to_all(x, 0, 0, REPLICAS), width=8)

    expected = rows_of(REPLICAS, 8).reshape(4, 4, 2).transpose(1, 0, 2).reshape(4, 8)
    check.identical(actual=actual, expected=expected, what="all_to_all, by replica")


@pytest.mark.parametrize("operation", ["all_gather", "all_to_all", "reduce_scatter"])
def test_another_number_of_replicas_is_refused(device: Device, operation: str) -> None:
    """The number of replicas in the call is the one that the program runs on."""
    calls = {
        "all_gather": lambda x: device.ipu.all_to_all_op.all_gather(x, 4),
        "all_to_all": lambda x: device.ipu.all_to_all_op.all_to_all(x, 0, 0, 4),
        "reduce_scatter": lambda x: device.ipu.reduce_scatter_op.reduce_scatter(x, 4),
    }

    with check.raises(ValueError, match="given 4 replicas, and the program runs on 2", what=f"{operation} over 4 of 2"):
        by_replica(device, calls[operation], replicas=2, width=4)


@pytest.mark.parametrize(
    ("op", "reduce"),
    [("COLLECTIVE_OP_ADD", np.sum), ("COLLECTIVE_OP_MEAN", np.mean), ("COLLECTIVE_OP_LOCAL", None)],
)
def test_reduce_scatter_leaves_pieces(device: Device, op: str, reduce: Any) -> None:
    """Each replica keeps its piece of the reduced vector, or of its own; zeros fill the last piece."""
    actual = by_replica(device, lambda x: device.ipu.reduce_scatter_op.reduce_scatter(x, REPLICAS, op), width=7)

    rows = np.pad(rows_of(REPLICAS, 7), [[0, 0], [0, 1]])
    whole = rows if reduce is None else grouped(rows, REPLICAS, reduce)
    expected = np.stack([whole[replica, 2 * replica :][:2] for replica in range(REPLICAS)])
    check.identical(actual=actual, expected=expected, what=f"reduce_scatter by {op}, by replica")


@pytest.mark.parametrize(
    ("shape", "op", "text"), [((2, 2), "COLLECTIVE_OP_ADD", "vector"), ((2,), "add", "COLLECTIVE_OP_ADD")]
)
def test_reduce_scatter_takes_vectors_and_known_reductions(ipu: Any, shape: Any, op: str, text: str) -> None:
    """A tensor of two dimensions has no pieces in order, and reductions have the vendor's names."""
    with check.raises(ValueError, match=text, what=f"reduce_scatter by {op} of a tensor of shape {shape}"):
        ipu.reduce_scatter_op.reduce_scatter(np.ones(shape, np.float32), 1, op)


def test_equal_values_pass(device: Device) -> None:
    """Assuming values to be equal changes nothing: every replica keeps its own."""
    assume = device.ipu.cross_replica_ops.assume_equal_across_replicas
    actual = by_replica(device, lambda x: assume([x, 2 * x])[1])

    check.identical(actual=actual, expected=2 * rows_of(REPLICAS), what="the assumed value, by replica")


def test_ipus_of_a_replica_exchange_shards(ipu: Any) -> None:
    """Within a replica shards are gathered, reduced, or reduced and scattered over its IPUs."""
    shards = [np.asarray(shard, np.float32) for shard in ([1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 13])]
    expected = {
        "all_gather": [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13]] * 3,
        "all_reduce": [[15, 18, 21, 25]] * 3,
        "reduce_scatter": [[15, 18], [21, 25], [0, 0]],
    }

    for name, values in expected.items():
        actual = [shard.numpy().tolist() for shard in getattr(ipu.within_replica_ops, name)(shards)]
        check.equal(actual=actual, expected=values, what=f"within_replica_ops.{name}, by shard")
