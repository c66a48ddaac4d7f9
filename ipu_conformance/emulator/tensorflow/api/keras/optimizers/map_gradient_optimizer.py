"""The Keras optimizer that changes every gradient with a function of the user."""

from ipu_conformance.emulator.tensorflow.optim.keras_wrappers import MapGradientOptimizer

__all__ = ["MapGradientOptimizer"]
