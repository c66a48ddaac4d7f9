"""Dropout that remembers its seed, not its mask."""

from ipu_conformance.emulator.tensorflow.ops.dropout import dropout

__all__ = ["dropout"]
