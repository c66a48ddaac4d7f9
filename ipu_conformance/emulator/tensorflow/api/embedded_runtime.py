"""Running an executable file inside TensorFlow, which needs the vendor's runtime."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow import unavailable

WHY = "executables run in the vendor's runtime only"

embedded_runtime_start = unavailable.function("embedded_runtime_start", WHY)
embedded_runtime_call = unavailable.function("embedded_runtime_call", WHY)
RuntimeContext = unavailable.kind("RuntimeContext", WHY)

__all__ = ["RuntimeContext", "embedded_runtime_call", "embedded_runtime_start"]
