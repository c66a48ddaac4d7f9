"""The Keras optimizer that accumulates the gradients of several mini-batches before it updates."""

from ipu_conformance.emulator.tensorflow.optim.keras_accumulation import GradientAccumulationOptimizer

__all__ = ["GradientAccumulationOptimizer"]
