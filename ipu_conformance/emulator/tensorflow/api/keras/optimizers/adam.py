"""Adam that finds by itself how much to scale a loss for gradients in float16."""

from ipu_conformance.emulator.tensorflow.optim.keras_scaling import ALSOptimizerAdam

__all__ = ["ALSOptimizerAdam"]
