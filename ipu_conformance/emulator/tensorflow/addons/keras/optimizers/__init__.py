"""Keras optimizers that compute, and keep their state, in dtypes of their own."""

from ipu_conformance.emulator.tensorflow.optim.mixed_precision import (
    AdamIpuOptimizer,
    IpuOptimizerBase,
    LAMBIpuOptimizer,
    SGDIpuOptimizer,
)

__all__ = ["AdamIpuOptimizer", "IpuOptimizerBase", "LAMBIpuOptimizer", "SGDIpuOptimizer"]
