"""Sums and means over replicas."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from ipu_conformance.emulator.faults.decisions import tensorflow_ops as _decide
from ipu_conformance.emulator.tensorflow.compile.shards import placing as _placing
from ipu_conformance.emulator.tensorflow.run import collectives as _collectives

__all__ = ["assume_equal_across_replicas", "cross_replica_mean", "cross_replica_sum"]


def cross_replica_sum(x: Any, replica_group_size: Optional[int] = None, name: Optional[str] = None) -> Any:
    """The sum over all replicas, or over each group of consecutive ones."""
    return _reduced(x, _collectives.SUM, replica_group_size, "cross_replica_sum")


def cross_replica_mean(x: Any, replica_group_size: Optional[int] = None, name: Optional[str] = None) -> Any:
    """The mean over all replicas, or over each group of consecutive ones."""
    return _reduced(x, _collectives.MEAN, replica_group_size, "cross_replica_mean")


def _reduced(x: Any, reduction: str, group: Optional[int], name: str) -> Any:
    if group is not None and (isinstance(group, bool) or not isinstance(group, int) or group < 1):
        raise ValueError(f"`replica_group_size` is {group!r}; use a whole number of replicas from 1 on, or None.")
    if _placing():
        return tf.identity(x)
    return _collectives.all_reduce(
        tf.convert_to_tensor(x), _decide("reduction", reduction), _decide("group", group), name
    )


def assume_equal_across_replicas(tensors: Any, inplace: bool = False) -> Any:
    """The tensors themselves, which are promised to be the same on every replica."""
    return _collectives.assume_equal(tensors)
