"""The optimizer that averages gradients over replicas."""

from __future__ import annotations

from typing import Any, List, Tuple

from ipu_conformance.emulator.tensorflow.optim.wrappers import CrossReplicaOptimizer
from ipu_conformance.emulator.tensorflow.optim.wrappers import averaged as _averaged

__all__ = ["CrossReplicaOptimizer", "apply_cross_replica_op", "apply_cross_replica_op_single"]


def apply_cross_replica_op(grads_and_vars: Any) -> List[Tuple[Any, Any]]:
    """The gradients as means over all replicas, each with its variable."""
    return _averaged(grads_and_vars)


def apply_cross_replica_op_single(grad: Any, var: Any) -> Tuple[Any, Any]:
    """One gradient as the mean over all replicas, with its variable."""
    ((mean, variable),) = _averaged([(grad, var)])
    return mean, variable
