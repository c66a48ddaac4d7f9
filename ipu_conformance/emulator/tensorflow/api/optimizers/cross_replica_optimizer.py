"""The optimizer that averages gradients over replicas."""

from ipu_conformance.emulator.tensorflow.optim.wrappers import CrossReplicaOptimizer

__all__ = ["CrossReplicaOptimizer"]
