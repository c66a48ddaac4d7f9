"""How accumulated gradients become the one gradient of an update."""

from ipu_conformance.emulator.tensorflow.run.accumulation import GradientAccumulationReductionMethod

__all__ = ["GradientAccumulationReductionMethod"]
