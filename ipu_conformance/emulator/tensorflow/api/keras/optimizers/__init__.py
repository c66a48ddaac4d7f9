"""The vendor's wrappers of Keras optimizers."""

from ipu_conformance.emulator.tensorflow.optim.keras_accumulation import (
    ALSOptimizerGradientAccumulationWrapper,
    GradientAccumulationOptimizer,
)
from ipu_conformance.emulator.tensorflow.optim.keras_wrappers import (
    ALSOptimizer,
    CrossReplicaOptimizer,
    IpuOptimizer,
    MapGradientOptimizer,
)

__all__ = [
    "ALSOptimizer",
    "ALSOptimizerGradientAccumulationWrapper",
    "CrossReplicaOptimizer",
    "GradientAccumulationOptimizer",
    "IpuOptimizer",
    "MapGradientOptimizer",
]
