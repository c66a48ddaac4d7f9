"""Functions that the device holds once, however often they are called."""

from ipu_conformance.emulator.tensorflow.compile.outlined import outlined_function

__all__ = ["outlined_function"]
