"""Collectives: what replicas compute together, and its gradients."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

from ipu_conformance import check

from ..device_programs import Device
from ..exact import samples

WIDTH = 3


def by_replica(device: Device, replicas: int, function: Callable[[Any], Any], width: int = WIDTH) -> np.ndarray:
    """What a function of a vector of each replica gives, by replica."""
    device.open(replicas)
    rows = samples(replicas * width).reshape(replicas, width)
    queue, out = device.infeed(rows), device.outfeed(last=True)
    device.repeat(1, lambda x: out.enqueue(function(x)), queue)
    got = device.dequeue(out)
    return got if replicas > 1 else got[None]


def grouped(rows: np.ndarray, group: Any, reduce: Callable[..., Any]) -> np.ndarray:
    """The reduction of each run of consecutive rows, once for every member."""
    size = group or len(rows)
    parts = [reduce(rows[start : start + size], axis=0) for start in range(0, len(rows), size)]
    return np.asarray([part for part in parts for _ in range(size)], np.float32)


@pytest.mark.parametrize(("replicas", "group"), [(1, None), (2, None), (4, 2), (4, 1)])
@pytest.mark.parametrize(("name", "reduce"), [("cross_replica_sum", np.sum), ("cross_replica_mean", np.mean)])
def test_replicas_reduce(device: Device, replicas: int, group: Any, name: str, reduce: Any) -> None:
    """Sums and means are over all replicas, or over groups of consecutive ones."""
    operation = getattr(device.ipu.cross_replica_ops, name)
    got = by_replica(device, replicas, lambda x: operation(x, group) if group else operation(x))

    rows = samples(replicas * WIDTH).reshape(replicas, WIDTH)
    check.identical(actual=got, expected=grouped(rows, group, reduce), what=name)


@pytest.mark.parametrize("name", ["cross_replica_sum", "cross_replica_mean"])
def test_gradients_are_reduced_alike(device: Device, name: str) -> None:
    """The gradient of a reduction is the same reduction of what comes from above, which differs by replica."""
    tf, reduce = device.tf, getattr(device.ipu.cross_replica_ops, name)

    def gradient(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = reduce(x) * tf.cast(device.ipu.replication_ops.replication_index() + 1, tf.float32)
        return tape.gradient(value, x)

    got = by_replica(device, 2, gradient)

    check.identical(
        actual=got, expected=np.full((2, WIDTH), 3 if name.endswith("sum") else 1.5, np.float32), what="the gradient"
    )


@pytest.mark.parametrize("group", [0, -2, 1.5, True])
def test_a_group_is_a_number_of_replicas(ipu: Any, group: Any) -> None:
    """Groups have at least one replica."""
    with pytest.raises(ValueError, match="replica_group_size"):
        ipu.cross_replica_ops.cross_replica_sum(1.0, group)


def test_replicas_are_numbered(device: Device) -> None:
    """The index of a replica is its number, from 0."""
    tf, index = device.tf, device.ipu.replication_ops.replication_index
    got = by_replica(device, 4, lambda x: tf.cast(index(), tf.float32))

    assert got.tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("replicas", [1, 2])
def test_all_gather_stacks(device: Device, replicas: int) -> None:
    """Every replica gets the tensors of all under a new leading axis."""
    got = by_replica(device, replicas, lambda x: device.ipu.all_to_all_op.all_gather(x, replicas))

    rows = samples(replicas * WIDTH).reshape(replicas, WIDTH)
    check.identical(actual=got, expected=np.stack([rows] * replicas), what="what was gathered")


def test_all_to_all_transposes(device: Device) -> None:
    """Piece s of replica r becomes piece r of replica s."""
    got = by_replica(device, 2, lambda x: device.ipu.all_to_all_op.all_to_all(x, 0, 0, 2), width=4)

    rows = samples(8).reshape(2, 2, 2)
    check.identical(actual=got, expected=rows.transpose(1, 0, 2).reshape(2, 4), what="what was received")


@pytest.mark.parametrize("operation", ["all_gather", "all_to_all", "reduce_scatter"])
def test_another_number_of_replicas_is_refused(device: Device, operation: str) -> None:
    """The number of replicas that is given must be the one that there is."""
    calls = {
        "all_gather": lambda x: device.ipu.all_to_all_op.all_gather(x, 4),
        "all_to_all": lambda x: device.ipu.all_to_all_op.all_to_all(x, 0, 0, 4),
        "reduce_scatter": lambda x: device.ipu.reduce_scatter_op.reduce_scatter(x, 4),
    }

    with pytest.raises(ValueError, match="given 4 replicas, and the program runs on 2"):
        by_replica(device, 2, calls[operation], width=4)


@pytest.mark.parametrize(
    ("op", "reduce"),
    [("COLLECTIVE_OP_ADD", np.sum), ("COLLECTIVE_OP_MEAN", np.mean), ("COLLECTIVE_OP_LOCAL", None)],
)
def test_reduce_scatter_leaves_pieces(device: Device, op: str, reduce: Any) -> None:
    """Each replica keeps its piece of the reduced vector, or of its own; zeros fill the last piece."""
    got = by_replica(device, 2, lambda x: device.ipu.reduce_scatter_op.reduce_scatter(x, 2, op))

    rows = np.pad(samples(2 * WIDTH).reshape(2, WIDTH), [[0, 0], [0, 1]])
    whole = rows if reduce is None else grouped(rows, None, reduce)
    check.identical(actual=got, expected=np.stack([whole[0, :2], whole[1, 2:]]), what="the pieces")


def test_reduce_scatter_takes_vectors(ipu: Any) -> None:
    """A tensor of two dimensions has no pieces in order."""
    with pytest.raises(ValueError, match="vector"):
        ipu.reduce_scatter_op.reduce_scatter(np.ones((2, 2), np.float32), 1)


def test_an_unknown_reduction_is_refused(ipu: Any) -> None:
    """Reductions have the vendor's names."""
    with pytest.raises(ValueError, match="COLLECTIVE_OP_ADD"):
        ipu.reduce_scatter_op.reduce_scatter(np.ones(2, np.float32), 1, "add")


def test_equal_values_pass(device: Device) -> None:
    """Assuming values to be equal changes nothing: every replica keeps its own."""
    assume = device.ipu.cross_replica_ops.assume_equal_across_replicas
    got = by_replica(device, 2, lambda x: assume([x, 2 * x])[1])

    check.identical(actual=got, expected=2 * samples(2 * WIDTH).reshape(2, WIDTH), what="the values")


def test_ipus_of_a_replica_exchange_shards(ipu: Any) -> None:
    """Within a replica shards are gathered, reduced, or reduced and scattered over its IPUs."""
    ops = ipu.within_replica_ops
    shards = [np.asarray([1, 2, 3], np.float32), np.asarray([4, 5, 6], np.float32)]

    assert [value.numpy().tolist() for value in ops.all_gather(shards)] == [[1, 2, 3, 4, 5, 6]] * 2
    assert [value.numpy().tolist() for value in ops.all_reduce(shards)] == [[5, 7, 9]] * 2
    assert [value.numpy().tolist() for value in ops.reduce_scatter(shards)] == [[5, 7], [9, 0]]
