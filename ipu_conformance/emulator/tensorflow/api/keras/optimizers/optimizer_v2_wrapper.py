"""The base of the vendor's wrappers of Keras optimizers."""

from ipu_conformance.emulator.tensorflow.optim.keras_wrappers import IpuOptimizer

__all__ = ["IpuOptimizer"]
