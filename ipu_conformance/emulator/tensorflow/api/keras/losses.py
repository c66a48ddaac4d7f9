"""The vendor's Keras losses."""

from ipu_conformance.emulator.tensorflow.layers.classification import CTCLoss

__all__ = ["CTCLoss"]
