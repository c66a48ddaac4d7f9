"""Collectives: what replicas compute together, and its gradients."""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from ..device_programs import Device

WIDTH = 8
REDUCTIONS: Dict[str, Callable[..., Any]] = {"cross_replica_sum": np.sum, "cross_replica_mean": np.mean}
GROUPS = {1: (None,), 4: (None, 2, 1)}
SCATTERED: Dict[str, Any] = {"COLLECTIVE_OP_ADD": np.sum, "COLLECTIVE_OP_MEAN": np.mean, "COLLECTIVE_OP_LOCAL": None}
Record = Dict[str, np.ndarray]


def rows_of(replicas: int) -> np.ndarray:
    """A vector for each replica; whole numbers, so that sums and means of four are exact."""
    return np.square(np.arange(1, replicas * WIDTH + 1, dtype=np.float32)).reshape(replicas, WIDTH)


def by_replica(device: Device, replicas: int, function: Callable[[Any], Any]) -> Any:
    """What a function of each replica's vector gives, by replica."""
    queue, out = device.open(replicas).infeed(rows_of(replicas)), device.outfeed(last=True)
    device.repeat(1, lambda x: out.enqueue(function(x)), queue)
    return device.tf.nest.map_structure(lambda value: value if replicas > 1 else value[None], device.dequeue(out))


def collectives(device: Device, replicas: int, x: Any) -> Dict[str, Any]:
    """What every collective gives for a vector of each replica, by name."""
    tf, ipu, cross = device.tf, device.ipu, device.ipu.cross_replica_ops
    index = tf.cast(ipu.replication_ops.replication_index(), tf.float32)
    results = {
        "replication_index": index,
        "all_gather": ipu.all_to_all_op.all_gather(x, replicas),
        "all_to_all": ipu.all_to_all_op.all_to_all(x, 0, 0, replicas),
        "assume_equal_across_replicas": cross.assume_equal_across_replicas([x, 2 * x])[1],
        **{op: ipu.reduce_scatter_op.reduce_scatter(x[:7], replicas, op) for op in SCATTERED},
    }
    for name in REDUCTIONS:
        reduce = getattr(cross, name)
        results.update({f"{name} over {group}": reduce(x, group) for group in GROUPS[replicas]})
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = reduce(x) * (index + 1)
        results[f"the gradient of {name}"] = tape.gradient(value, x)
    return results


@pytest.fixture(scope="session")
def records() -> Dict[Tuple[str, int], Record]:
    """The runs of this session, by mode and number of replicas."""
    return {}


@pytest.fixture(params=[1, 4])
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
def test_replicas_reduce(record: Record, replicas: int, name: str) -> None:
    """Sums and means are over all replicas, or over groups of consecutive ones."""
    for group in GROUPS[replicas]:
        what, expected = f"{name} over {group}", grouped(rows_of(replicas), group or replicas, REDUCTIONS[name])
        check.identical(actual=record[what], expected=expected, what=f"{what}, by replica")


@pytest.mark.parametrize("name", REDUCTIONS)
def test_gradients_are_reduced_alike(record: Record, replicas: int, name: str) -> None:
    """The gradient of a reduction is the same reduction of the replicas' incoming gradients 1, 2, …"""
    what, incoming = f"the gradient of {name}", np.arange(1, replicas + 1, dtype=np.float32)

    expected = np.full((replicas, WIDTH), REDUCTIONS[name](incoming), np.float32)
    check.identical(actual=record[what], expected=expected, what=f"{what}, by replica")


@pytest.mark.parametrize("group", [0, -2, 1.5, True])
def test_a_group_is_a_number_of_replicas(ipu: Any, group: Any) -> None:
    """A group has at least one replica."""
    with check.raises(ValueError, match="replica_group_size", what=f"a replica_group_size of {group}"):
        ipu.cross_replica_ops.cross_replica_sum(1.0, group)


def test_replicas_are_numbered(record: Record, replicas: int) -> None:
    """The index of a replica is its number, from 0."""
    expected = np.arange(replicas, dtype=np.float32)
    check.identical(actual=record["replication_index"], expected=expected, what="replication_index, by replica")


def test_all_gather_stacks(record: Record, replicas: int) -> None:
    """Every replica gets the tensors of all under a new leading axis."""
    expected = np.stack([rows_of(replicas)] * replicas)
    check.identical(actual=record["all_gather"], expected=expected, what="all_gather, by replica")


def test_all_to_all_transposes(record: Record, replicas: int) -> None:
    """Piece s of replica r becomes piece r of replica s."""
    expected = rows_of(replicas).reshape(replicas, replicas, -1).transpose(1, 0, 2).reshape(replicas, WIDTH)
    check.identical(actual=record["all_to_all"], expected=expected, what="all_to_all, by replica")


def test_equal_values_pass(record: Record, replicas: int) -> None:
    """Assuming values to be equal changes nothing: every replica keeps its own."""
    name = "assume_equal_across_replicas"
    check.identical(actual=record[name], expected=2 * rows_of(replicas), what=f"{name}, by replica")


@pytest.mark.parametrize("op", SCATTERED)
def test_reduce_scatter_leaves_pieces(record: Record, replicas: int, op: str) -> None:
    """Each replica keeps its piece of the reduced vector, or of its own; zeros fill the last of several pieces."""
    reduce, width = SCATTERED[op], -(-7 // replicas)

    rows = np.pad(rows_of(replicas)[:, :7], [[0, 0], [0, replicas * width - 7]])
    whole = rows if reduce is None else grouped(rows, replicas, reduce)
    expected = np.stack([whole[replica, width * replica :][:width] for replica in range(replicas)])
    check.identical(actual=record[op], expected=expected, what=f"reduce_scatter by {op}, by replica")


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
