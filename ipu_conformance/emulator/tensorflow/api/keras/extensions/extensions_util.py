"""Tensors of several replicas as one batch."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["merge_into_batch_dimension"]


def merge_into_batch_dimension(tensors: Any, local_replication_factor: int) -> Any:
    """Tensors of [steps, (replicas,) batch, ...] with these dimensions as one; scalars of each become a vector."""
    leading = 2 if local_replication_factor > 1 else 1

    def merged(tensor: Any) -> Any:
        rest = tensor.shape[leading + 1 :] if tensor.shape.rank > leading else []
        return tf.reshape(tensor, [-1, *rest])

    return tf.nest.map_structure(merged, tensors)
