"""What a model that is a chain of layers has on the IPU."""

from ipu_conformance.emulator.tensorflow.keras.extension import SequentialExtension

__all__ = ["SequentialExtension"]
