"""The optimizer that averages gradients over replicas."""

from __future__ import annotations

from typing import Any, Optional

from ipu_conformance.emulator.faults.decisions import tensorflow_ops as decide
from ipu_conformance.emulator.tensorflow.api.ops import cross_replica_ops
from ipu_conformance.emulator.tensorflow.api.optimizers.ipu_optimizer import IpuOptimizer

__all__ = ["CrossReplicaOptimizer"]


class CrossReplicaOptimizer(IpuOptimizer):
    """Takes the mean of every gradient over all replicas before it is applied."""

    def __init__(self, opt: Any, name: str = "CrossReplicaOptimizer") -> None:
        super().__init__(opt, name)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None) -> Any:
        """The operation that updates the variables with the means."""
        reduce = decide("cross-replica-optimizer", cross_replica_ops.cross_replica_mean)
        reduced = [
            (gradient if gradient is None else reduce(gradient), variable) for gradient, variable in grads_and_vars
        ]
        return super().apply_gradients(reduced, global_step, name)
