"""Summaries of what the vendor's compiler did."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow.surface import unavailable_function as _unavailable_function

__all__ = ["get_ipu_reports", "ipu_compile_summary"]

_WHY = "its events are written by the vendor's compiler"

get_ipu_reports = _unavailable_function("get_ipu_reports", _WHY)
ipu_compile_summary = _unavailable_function("ipu_compile_summary", _WHY)
