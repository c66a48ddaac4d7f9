"""The optimizers that accumulate the gradients of several mini-batches of a loop before they update."""

from ipu_conformance.emulator.tensorflow.optim.accumulation import (
    CrossReplicaGradientAccumulationOptimizer,
    CrossReplicaGradientAccumulationOptimizerV2,
    GradientAccumulationOptimizer,
    GradientAccumulationOptimizerV2,
)
from ipu_conformance.emulator.tensorflow.run.accumulation import GradientAccumulationReductionMethod

__all__ = [
    "CrossReplicaGradientAccumulationOptimizer",
    "CrossReplicaGradientAccumulationOptimizerV2",
    "GradientAccumulationOptimizer",
    "GradientAccumulationOptimizerV2",
    "GradientAccumulationReductionMethod",
]
