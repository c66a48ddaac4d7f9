"""Exports for TensorFlow Serving on IPUs, which hold a compiled executable: refused, for there is no compiler here."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow import unavailable

WHY = "an export for serving holds an executable that the vendor's compiler makes"

export_single_step = unavailable.function("export_single_step", WHY)
export_pipeline = unavailable.function("export_pipeline", WHY)
export_keras = unavailable.function("export_keras", WHY)

__all__ = ["export_keras", "export_pipeline", "export_single_step"]
