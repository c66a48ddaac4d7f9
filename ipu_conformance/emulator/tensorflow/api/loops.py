"""Loops that the device runs by itself, fed from an infeed."""

from ipu_conformance.emulator.tensorflow.compile.loops import for_loop, repeat, while_loop

__all__ = ["for_loop", "repeat", "while_loop"]
