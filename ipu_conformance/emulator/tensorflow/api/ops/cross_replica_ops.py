"""Sums and means over replicas."""

from ipu_conformance.emulator.tensorflow.run.collectives import (
    assume_equal_across_replicas,
    cross_replica_mean,
    cross_replica_sum,
)

__all__ = ["assume_equal_across_replicas", "cross_replica_mean", "cross_replica_sum"]
