"""Running an executable file inside TensorFlow, which needs the vendor's runtime."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow.surface import unavailable_class as _unavailable_class
from ipu_conformance.emulator.tensorflow.surface import unavailable_function as _unavailable_function

_WHY = "executables run in the vendor's runtime only"

embedded_runtime_start = _unavailable_function("embedded_runtime_start", _WHY)
embedded_runtime_call = _unavailable_function("embedded_runtime_call", _WHY)
RuntimeContext = _unavailable_class("RuntimeContext", _WHY)

__all__ = ["RuntimeContext", "embedded_runtime_call", "embedded_runtime_start"]
