"""Summaries of what the vendor's compiler did."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow import unavailable

__all__ = ["get_ipu_reports", "ipu_compile_summary"]

WHY = "its events are written by the vendor's compiler"

get_ipu_reports = unavailable.function("get_ipu_reports", WHY)
ipu_compile_summary = unavailable.function("ipu_compile_summary", WHY)
