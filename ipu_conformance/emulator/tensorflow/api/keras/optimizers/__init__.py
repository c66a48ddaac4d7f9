"""The vendor's wrappers of Keras optimizers."""

from ipu_conformance.emulator.tensorflow.optim.keras_accumulation import (
    ALSGradientAccumulationOptimizer,
    ALSOptimizerGradientAccumulationWrapper,
    GradientAccumulationOptimizer,
)
from ipu_conformance.emulator.tensorflow.optim.keras_scaling import (
    ALSOptimizerAdam,
    ALSOptimizerRMSProp,
    ALSOptimizerSGD,
)
from ipu_conformance.emulator.tensorflow.optim.keras_wrappers import (
    ALSOptimizer,
    CrossReplicaOptimizer,
    IpuOptimizer,
    MapGradientOptimizer,
)

__all__ = [
    "ALSGradientAccumulationOptimizer",
    "ALSOptimizer",
    "ALSOptimizerAdam",
    "ALSOptimizerGradientAccumulationWrapper",
    "ALSOptimizerRMSProp",
    "ALSOptimizerSGD",
    "CrossReplicaOptimizer",
    "GradientAccumulationOptimizer",
    "IpuOptimizer",
    "MapGradientOptimizer",
]
