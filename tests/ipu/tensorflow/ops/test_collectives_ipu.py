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
    outfed = device.open(replicas).outfed(1, function, rows_of(replicas), last=True)
    return device.tf.nest.map_structure(lambda value: value if replicas > 1 else value[None], outfed)


def collectives(device: Device, replicas: int, x: Any) -> Dict[str, Any]:
    """What every collective gives for a vector of each replica, by name."""
    tf, ipu, cross = device.tf, device.ipu, device.ipu.cross_replica_ops
    index = tf.cast(ipu.replication_ops.replication_index(), tf.float32)
    integers = tf.cast(x, tf.int32) + LARGE
    results = {
        "replication_index": index,
        "all_gather of two": ipu.all_to_all_op.all_gather([x, x + 1], replicas),
        "all_gather of integers": ipu.all_to_all_op.all_gather(integers, replicas),
        "cross_replica_sum of integers": cross.cross_replica_sum(integers),
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
        results[name] = value
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


@pytest.mark.parametrize("name", REDUCTIONS)
def test_gradients_are_reduced_alike(replicas: int, record: Record, name: str) -> None:
    """The gradient of a reduction is the same reduction, over the same groups, of the gradients that come in."""
    for group in GROUPS[replicas]:
        what = f"the gradient of {name} over {group}"
        expected = grouped(incoming_rows(replicas, WIDTH), group or replicas, REDUCTIONS[name])
        check.identical(actual=record[what], expected=expected, what=f"{what}, by replica")


def pieces(rows: np.ndarray) -> np.ndarray:
    """Piece s of replica r, as piece r of replica s."""
    return rows.reshape(len(rows), len(rows), -1).transpose(1, 0, 2).reshape(rows.shape)


def scattered(whole: np.ndarray) -> np.ndarray:
    """Each replica's piece of what each could have; zeros fill the last of several pieces."""
    width = -(-whole.shape[1] // len(whole))
    filled = np.pad(whole, [[0, 0], [0, len(whole) * width - whole.shape[1]]])
    return np.stack([row[width * replica :][:width] for replica, row in enumerate(filled)])


def reduced(reduce: Any) -> Callable[[np.ndarray], np.ndarray]:
    """What reduce_scatter leaves of the first of each replica's numbers, or of its own."""
    return lambda rows: scattered(rows[:, :7] if reduce is None else grouped(rows[:, :7], len(rows), reduce))


SPECIFIED: Dict[str, Callable[[np.ndarray], Any]] = {
    "replication_index": lambda rows: np.arange(len(rows), dtype=np.float32),
    "all_gather": lambda rows: np.stack([rows] * len(rows)),
    "all_gather of two": lambda rows: np.stack([[rows] * len(rows), [rows + 1] * len(rows)]),
    "all_gather of integers": lambda rows: np.stack([rows.astype(np.int32) + np.int32(LARGE)] * len(rows)),
    "cross_replica_sum of integers": lambda rows: (
        grouped(rows.astype(np.int64) + LARGE, len(rows), np.sum).astype(np.int32)
    ),
    "all_to_all": pieces,
    "all_to_all over two dimensions": lambda rows: (
        rows.reshape(len(rows), 2, len(rows), -1).transpose(2, 0, 1, 3).reshape(len(rows), 2 * len(rows), -1)
    ),
    "assume_equal_across_replicas": lambda rows: 2 * rows,
    **{op: reduced(reduce) for op, reduce in SCATTERED.items()},
    PRODUCT: lambda rows: scattered(np.full((len(rows), 7), math.factorial(len(rows)), np.float32)),
    "reduce_scatter of two": lambda rows: np.stack(
        [(rows + more).sum(axis=0).reshape(len(rows), -1) for more in (0, 1)]
    ),
    "the gradient of all_gather": lambda rows: (
        incoming_rows(len(rows), rows.size).reshape(len(rows), *rows.shape).sum(axis=0)
    ),
    "the gradient of all_to_all": lambda rows: pieces(incoming_rows(*rows.shape)),
}


@pytest.mark.parametrize("name", SPECIFIED)
def test_collectives_are_as_specified(replicas: int, record: Record, name: str) -> None:
    """Replicas are numbered; they gather, exchange and scatter pieces, whose gradients go back to their replicas."""
    check.identical(actual=record[name], expected=SPECIFIED[name](rows_of(replicas)), what=f"{name}, by replica")


SHARDS = np.square(np.arange(3 * 4 * 5, dtype=np.float32)).reshape(3, 4, 5) * 3
WITHIN: Dict[str, Tuple[Dict[str, Any], Any]] = {
    "all_gather": ({}, [np.concatenate(SHARDS)] * 3),
    "all_gather-axis": ({"axis": 1}, [np.concatenate(SHARDS, axis=1)] * 3),
    "all_reduce": ({"op": "COLLECTIVE_OP_ADD"}, [SHARDS.sum(axis=0)] * 3),
    "all_reduce-mean": ({"op": "COLLECTIVE_OP_MEAN"}, [SHARDS.mean(axis=0)] * 3),
    "reduce_scatter": ({"op": "COLLECTIVE_OP_ADD"}, np.split(np.pad(SHARDS.sum(axis=0), [[0, 2], [0, 0]]), 3),
    ),
    "reduce_scatter-mean": ({"op": "COLLECTIVE_OP_MEAN"}, np.split(np.pad(SHARDS.mean(axis=0), [[0, 2], [0, 0]]), 3),
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
