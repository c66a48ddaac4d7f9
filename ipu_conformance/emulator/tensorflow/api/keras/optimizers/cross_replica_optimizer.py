"""The Keras optimizer that averages gradients over replicas."""

from ipu_conformance.emulator.tensorflow.optim.keras_wrappers import CrossReplicaOptimizer

__all__ = ["CrossReplicaOptimizer"]
