"""Keras optimizers that find by themselves how much to scale a loss for gradients in float16."""

from ipu_conformance.emulator.tensorflow.optim.keras_accumulation import ALSGradientAccumulationOptimizer
from ipu_conformance.emulator.tensorflow.optim.keras_wrappers import ALSOptimizer
from ipu_conformance.emulator.tensorflow.optim.loss_scaling import ALSDefaults

__all__ = ["ALSDefaults", "ALSGradientAccumulationOptimizer", "ALSOptimizer"]
