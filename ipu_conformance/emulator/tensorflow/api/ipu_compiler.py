"""Compiling a part of a graph for the IPU."""

from ipu_conformance.emulator.tensorflow.compile.compiler import compile

__all__ = ["compile"]
