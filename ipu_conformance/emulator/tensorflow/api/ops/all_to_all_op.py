"""Exchanges in which every replica gets something of every other."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.compile.shards import placing as _placing
from ipu_conformance.emulator.tensorflow.run import collectives as _collectives

__all__ = ["all_gather", "all_to_all"]


def all_gather(x: Any, replication_factor: int, name: Optional[str] = None) -> Any:
    """The tensors of all replicas under a new leading axis; of a list of tensors, a list."""
    _collectives.require_replicas(replication_factor)
    if isinstance(x, (list, tuple)):
        return [all_gather(item, replication_factor, name) for item in x]
    if _placing():
        return tf.stack([x] * replication_factor)
    return _collectives.all_gather(tf.convert_to_tensor(x))


def all_to_all(
    x: Any, split_dimension: int, concat_dimension: int, replication_factor: int, name: Optional[str] = None
) -> Any:
    """Piece s of the tensor of replica r becomes piece r of what replica s gets.

    The tensor is cut along one dimension, and what is received is joined along another.
    """
    _collectives.require_replicas(replication_factor)
    x = tf.convert_to_tensor(x)
    size = x.shape[split_dimension]
    if size % replication_factor:
        raise ValueError(
            f"Dimension {split_dimension} of a tensor of shape {x.shape} cannot be cut into {replication_factor} equal "
            "pieces, one for each replica."
        )
    pieces = tf.stack(tf.split(x, replication_factor, axis=split_dimension))
    received = pieces if _placing() else _collectives.all_to_all(pieces)
    return tf.concat(tf.unstack(received, num=replication_factor), axis=concat_dimension)
