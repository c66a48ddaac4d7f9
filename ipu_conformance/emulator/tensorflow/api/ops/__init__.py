"""The vendor's operations, in modules that are imported on first use."""

from ipu_conformance.emulator.tensorflow.surface import lazy as _lazy

__getattr__, __dir__ = _lazy(__name__)
