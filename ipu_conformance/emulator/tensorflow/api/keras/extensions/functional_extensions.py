"""What a model made of inputs and outputs has on the IPU."""

from ipu_conformance.emulator.tensorflow.keras.extension import FunctionalExtension

__all__ = ["FunctionalExtension"]
