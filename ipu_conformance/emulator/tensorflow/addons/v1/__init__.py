"""What the add-ons have for programs of TensorFlow 1."""

from ipu_conformance.emulator.tensorflow.surface import lazy as _lazy

__getattr__, __dir__ = _lazy(__name__)
