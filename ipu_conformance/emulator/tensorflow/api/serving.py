"""Exports for TensorFlow Serving, which hold a compiled executable: refused, as the emulator has no compiler."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow.surface import EXPORT_NEEDS_COMPILER as _WHY
from ipu_conformance.emulator.tensorflow.surface import unavailable_function as _unavailable_function

export_single_step = _unavailable_function("export_single_step", _WHY)
export_pipeline = _unavailable_function("export_pipeline", _WHY)
export_keras = _unavailable_function("export_keras", _WHY)

__all__ = ["export_keras", "export_pipeline", "export_single_step"]
