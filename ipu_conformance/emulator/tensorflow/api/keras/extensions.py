"""What models have on the IPU by their kind: subclassed, made of inputs and outputs, or a chain of layers."""

from ipu_conformance.emulator.tensorflow.keras.extension import FunctionalExtension, ModelExtension, SequentialExtension

__all__ = ["FunctionalExtension", "ModelExtension", "SequentialExtension"]
