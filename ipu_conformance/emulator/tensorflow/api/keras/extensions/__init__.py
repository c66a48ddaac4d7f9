"""What models have on the IPU by their kind: subclassed, made of inputs and outputs, or a chain of layers."""

from ipu_conformance.emulator.tensorflow.keras.extension import FunctionalExtension, ModelExtension, SequentialExtension
from ipu_conformance.emulator.tensorflow.surface import lazy as _lazy

__all__ = ["FunctionalExtension", "ModelExtension", "SequentialExtension"]

__getattr__, __dir__ = _lazy(__name__)
