"""Compiling a program to an executable file, which only the vendor's compiler can."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow import unavailable

WHY = "the executable is made by the vendor's compiler"

experimental_application_compile_op = unavailable.function("experimental_application_compile_op", WHY)

__all__ = ["experimental_application_compile_op"]
