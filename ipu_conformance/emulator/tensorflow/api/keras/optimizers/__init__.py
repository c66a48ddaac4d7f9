"""The vendor's wrappers of Keras optimizers: they change gradients on their way, and work in ``fit``."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow.api.keras.optimizers.automatic_loss_scaling_optimizer import (
    ALSOptimizer,
    ALSOptimizerGradientAccumulationWrapper,
)
from ipu_conformance.emulator.tensorflow.api.keras.optimizers.cross_replica_optimizer import CrossReplicaOptimizer
from ipu_conformance.emulator.tensorflow.api.keras.optimizers.gradient_accumulation_optimizer import (
    GradientAccumulationOptimizer,
)
from ipu_conformance.emulator.tensorflow.api.keras.optimizers.ipu_wrapper import IpuOptimizer
from ipu_conformance.emulator.tensorflow.api.keras.optimizers.map_gradient_optimizer import MapGradientOptimizer

__all__ = [
    "ALSOptimizer",
    "ALSOptimizerGradientAccumulationWrapper",
    "CrossReplicaOptimizer",
    "GradientAccumulationOptimizer",
    "IpuOptimizer",
    "MapGradientOptimizer",
]
