"""The Keras optimizer that averages gradients over replicas."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_conformance.emulator.faults.decisions import tensorflow_ops as decide
from ipu_conformance.emulator.tensorflow.api.keras.optimizers.ipu_wrapper import IpuOptimizer, Pairs
from ipu_conformance.emulator.tensorflow.api.ops import cross_replica_ops

__all__ = ["CrossReplicaOptimizer"]


class CrossReplicaOptimizer(IpuOptimizer):
    """Takes the mean of every gradient over all replicas before it is applied."""

    def __init__(self, opt: Any, name: str = "CrossReplicaOptimizer") -> None:
        super().__init__(opt, name)

    def preprocess_gradients(self, grads_and_vars: Pairs) -> Pairs:
        """The means."""
        reduce = decide("cross-replica-optimizer", cross_replica_ops.cross_replica_mean)
        return [
            (gradient if gradient is None else reduce(tf.convert_to_tensor(gradient)), variable)
            for gradient, variable in grads_and_vars
        ]
