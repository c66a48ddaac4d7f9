"""Sums and means over replicas."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from ipu_conformance.emulator.faults.decisions import tensorflow_ops as decide
from ipu_conformance.emulator.tensorflow.compile.placing import placing
from ipu_conformance.emulator.tensorflow.run import collectives

__all__ = ["assume_equal_across_replicas", "cross_replica_mean", "cross_replica_sum"]


def cross_replica_sum(x: Any, replica_group_size: Optional[int] = None, name: Optional[str] = None) -> Any:
    """The sum over all replicas, or over each group of consecutive ones."""
    return _reduced(x, collectives.SUM, replica_group_size, "cross_replica_sum")


def cross_replica_mean(x: Any, replica_group_size: Optional[int] = None, name: Optional[str] = None) -> Any:
    """The mean over all replicas, or over each group of consecutive ones."""
    return _reduced(x, collectives.MEAN, replica_group_size, "cross_replica_mean")


def _reduced(x: Any, reduction: str, group: Optional[int], name: str) -> Any:
    if group is not None and (isinstance(group, bool) or not isinstance(group, int) or group < 1):
        raise ValueError(f"`replica_group_size` is {group!r}; use a whole number of replicas from 1 on, or None.")
    if placing():
        return tf.identity(x)
    return collectives.all_reduce(tf.convert_to_tensor(x), decide("reduction", reduction), decide("group", group), name)


def assume_equal_across_replicas(tensors: Any, inplace: bool = False) -> Any:
    """The tensors themselves, which are promised to be the same on every replica."""
    return collectives.assume_equal(tensors)
