"""Data sets of the vendor."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow.api.data import ops

__all__ = ["ops"]
