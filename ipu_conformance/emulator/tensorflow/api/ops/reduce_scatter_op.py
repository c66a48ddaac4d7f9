"""Reductions that leave each replica a piece."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from ipu_conformance.emulator.faults.decisions import tensorflow_ops as _decide
from ipu_conformance.emulator.tensorflow.compile.shards import placing as _placing
from ipu_conformance.emulator.tensorflow.run import collectives as _collectives
from ipu_conformance.emulator.tensorflow.run import replicas as _replicas

__all__ = ["reduce_scatter"]

_ADD, _MEAN, _LOCAL = "COLLECTIVE_OP_ADD", "COLLECTIVE_OP_MEAN", "COLLECTIVE_OP_LOCAL"
_REDUCTIONS = {
    _ADD: _collectives.SUM,
    _MEAN: _collectives.MEAN,
    "COLLECTIVE_OP_MUL": _collectives.PRODUCT,
    "COLLECTIVE_OP_MIN": _collectives.MIN,
    "COLLECTIVE_OP_MAX": _collectives.MAX,
}


def reduce_scatter(x: Any, replication_factor: int, op: str = _ADD, name: Optional[str] = None) -> Any:
    """The piece of this replica of a vector that was reduced over all: zeros fill up the last piece.

    With COLLECTIVE_OP_LOCAL nothing is reduced: each replica keeps its piece of its own vector.
    """
    _collectives.require_replicas(replication_factor)
    if isinstance(x, (list, tuple)):
        return [reduce_scatter(item, replication_factor, op, name) for item in x]
    x = tf.convert_to_tensor(x)
    if x.shape.rank != 1:
        raise ValueError(f"A tensor of shape {x.shape} was given; reduce_scatter takes a vector: reshape it to [-1].")
    if op == _LOCAL or _placing():
        length = -(-int(x.shape[0]) // replication_factor)
        padded = tf.pad(x, [[0, length * replication_factor - int(x.shape[0])]])
        return tf.split(padded, replication_factor)[_decide("piece", _replicas.current())]
    if op not in _REDUCTIONS:
        raise ValueError(f"`op` is {op!r}; use one of {', '.join([*_REDUCTIONS, _LOCAL])}.")
    return _decide("scattered", _collectives.reduce_scatter(x, _REDUCTIONS[op]))
