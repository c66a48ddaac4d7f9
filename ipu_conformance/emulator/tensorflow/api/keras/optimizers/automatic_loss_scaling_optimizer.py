"""The Keras optimizer that finds by itself how much to scale a loss for gradients in float16."""

from ipu_conformance.emulator.tensorflow.optim.keras_accumulation import ALSOptimizerGradientAccumulationWrapper
from ipu_conformance.emulator.tensorflow.optim.keras_wrappers import ALSOptimizer

__all__ = ["ALSOptimizer", "ALSOptimizerGradientAccumulationWrapper"]
