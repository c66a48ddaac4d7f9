"""The optimizers that change every gradient with a function of the user."""

from ipu_conformance.emulator.tensorflow.optim.wrappers import (
    MapGradientOptimizer,
    MapGradientOptimizerInvertedChaining,
)

__all__ = ["MapGradientOptimizer", "MapGradientOptimizerInvertedChaining"]
