"""The emulated ``ipu_tensorflow_addons``: layers that later SDKs keep in a package of their own."""

from ipu_conformance.emulator.tensorflow.surface import lazy as _lazy

__getattr__, __dir__ = _lazy(__name__)
