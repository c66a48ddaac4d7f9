"""The optimizer that finds by itself how much to scale a loss for gradients in float16."""

from ipu_conformance.emulator.tensorflow.optim.wrappers import AutomaticLossScalingOptimizer

__all__ = ["AutomaticLossScalingOptimizer"]
