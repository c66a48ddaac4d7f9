"""The optimizer of a sharded graph."""

from ipu_conformance.emulator.tensorflow.optim.wrappers import ShardedOptimizer

__all__ = ["ShardedOptimizer"]
