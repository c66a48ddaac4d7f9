"""What a model that is subclassed has on the IPU."""

from ipu_conformance.emulator.tensorflow.keras.extension import ModelExtension

__all__ = ["ModelExtension"]
