"""Reductions that leave each replica a piece."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

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
        return _piece(x, _replicas.current(), replication_factor)
    if op not in _REDUCTIONS:
        raise ValueError(f"`op` is {op!r}; use one of {', '.join([*_REDUCTIONS, _LOCAL])}.")
    return _collectives.reduce_scatter(x, _REDUCTIONS[op])


def _piece(x: Any, number: int, pieces: int) -> Any:
    """One of the equal pieces of a vector: zeros fill up the last."""
    length = -(-int(x.shape[0]) // pieces)
    return tf.split(tf.pad(x, [[0, length * pieces - int(x.shape[0])]]), pieces)[number]
