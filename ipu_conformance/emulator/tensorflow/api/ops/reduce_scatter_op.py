"""Reductions of which every replica keeps a piece."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from ipu_conformance.emulator.faults.decisions import tensorflow_ops as decide
from ipu_conformance.emulator.tensorflow.api.ops import all_to_all_op
from ipu_conformance.emulator.tensorflow.compile.placing import placing
from ipu_conformance.emulator.tensorflow.run import collectives, replicas

__all__ = ["reduce_scatter"]

ADD, MEAN, LOCAL = "COLLECTIVE_OP_ADD", "COLLECTIVE_OP_MEAN", "COLLECTIVE_OP_LOCAL"
REDUCTIONS = {
    ADD: collectives.SUM,
    MEAN: collectives.MEAN,
    "COLLECTIVE_OP_MUL": collectives.PRODUCT,
    "COLLECTIVE_OP_MIN": collectives.MIN,
    "COLLECTIVE_OP_MAX": collectives.MAX,
}


def reduce_scatter(x: Any, replication_factor: int, op: str = ADD, name: Optional[str] = None) -> Any:
    """The piece of this replica of a vector that was reduced over all: zeros fill up the last piece.

    With COLLECTIVE_OP_LOCAL nothing is reduced: each replica keeps its piece of its own vector.
    """
    all_to_all_op.require_replicas(replication_factor)
    if isinstance(x, (list, tuple)):
        return [reduce_scatter(item, replication_factor, op, name) for item in x]
    x = tf.convert_to_tensor(x)
    if x.shape.rank != 1:
        raise ValueError(f"A tensor of shape {x.shape} was given; reduce_scatter takes a vector: reshape it to [-1].")
    if op == LOCAL or placing():
        length = -(-int(x.shape[0]) // replication_factor)
        padded = tf.pad(x, [[0, length * replication_factor - int(x.shape[0])]])
        return tf.split(padded, replication_factor)[decide("piece", replicas.current())]
    if op not in REDUCTIONS:
        raise ValueError(f"`op` is {op!r}; use one of {', '.join([*REDUCTIONS, LOCAL])}.")
    return decide("scattered", collectives.reduce_scatter(x, REDUCTIONS[op]))
