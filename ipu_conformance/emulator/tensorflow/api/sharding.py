"""Which IPU of a replica an operation of a graph belongs to."""

from ipu_conformance.emulator.tensorflow.compile.sharding import (
    dependencies,
    get_shard_from_colocation,
    has_attr,
    propagate_sharding,
)

__all__ = ["dependencies", "get_shard_from_colocation", "has_attr", "propagate_sharding"]
