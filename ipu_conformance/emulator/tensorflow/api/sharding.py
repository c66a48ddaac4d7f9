"""Which IPU of a replica an operation of a graph belongs to."""

from ipu_conformance.emulator.tensorflow.compile.sharding import (
    dependencies,
    get_shard_from_colocation,
    get_sharding,
    has_attr,
    propagate_sharding,
)

__all__ = [
    "dependencies",
    "enable_sharded_gradient_tape",
    "get_shard_from_colocation",
    "get_sharding",
    "has_attr",
    "propagate_sharding",
]


def enable_sharded_gradient_tape() -> None:
    """Gradients of a tape lie where their forward operations do; here they always do."""
