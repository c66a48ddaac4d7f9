"""Exchanges between the IPUs of one replica, each with a shard of a tensor."""

from __future__ import annotations

from typing import Any, List, Sequence

import tensorflow as tf

__all__ = ["all_gather", "all_reduce", "reduce_scatter"]

_OPERATORS = ("COLLECTIVE_OP_ADD", "COLLECTIVE_OP_MEAN")


def all_gather(input_shards: Sequence[Any], axis: int = 0) -> List[Any]:
    """For each IPU all shards, joined along an axis."""
    joined = tf.concat(_shards(input_shards), axis)
    return [tf.identity(joined) for _ in input_shards]


def all_reduce(input_shards: Sequence[Any], op: str) -> List[Any]:
    """For each IPU the sum, or the mean, of all shards."""
    total = _reduced(_shards(input_shards), op)
    return [tf.identity(total) for _ in input_shards]


def reduce_scatter(input_shards: Sequence[Any], op: str) -> List[Any]:
    """For each IPU its piece of the sum, or of the mean, of all shards; zeros fill up the last piece."""
    total, number = _reduced(_shards(input_shards), op), len(input_shards)
    length = -(-int(total.shape[0]) // number)
    padding = [[0, length * number - int(total.shape[0])], *([0, 0] for _ in range(total.shape.rank - 1))]
    return list(tf.split(tf.pad(total, padding), number, axis=0))


def _shards(given: Sequence[Any]) -> List[Any]:
    tensors = [tf.convert_to_tensor(shard) for shard in given]
    if not tensors:
        raise ValueError("No shards were given: give the tensor of each IPU.")
    return tensors


def _reduced(tensors: List[Any], op: str) -> Any:
    if op not in _OPERATORS:
        raise ValueError(f"`op` is {op!r}; use one of {', '.join(_OPERATORS)}.")
    total = tf.add_n(tensors)
    return total / tf.cast(len(tensors), total.dtype) if op.endswith("MEAN") else total
