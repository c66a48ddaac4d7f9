"""The base of optimizers that scale losses by themselves."""

from ipu_conformance.emulator.tensorflow.optim.keras_scaling import ParameterUnscalingALSOptimizer

__all__ = ["ParameterUnscalingALSOptimizer"]
