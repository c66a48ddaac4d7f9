"""The optimizer that wraps another and leaves everything to it."""

from ipu_conformance.emulator.tensorflow.optim.wrappers import IpuOptimizer

__all__ = ["IpuOptimizer"]
