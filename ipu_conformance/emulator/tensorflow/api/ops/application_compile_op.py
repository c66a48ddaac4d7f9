"""Compiling a program to an executable file, which only the vendor's compiler can."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow.surface import unavailable_function as _unavailable_function

_WHY = "the executable is made by the vendor's compiler"

experimental_application_compile_op = _unavailable_function("experimental_application_compile_op", _WHY)

__all__ = ["experimental_application_compile_op"]
