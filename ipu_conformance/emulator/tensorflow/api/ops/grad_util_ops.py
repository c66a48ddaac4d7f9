"""Capturing the gradients of activations, which the emulator does not."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow.surface import CAPTURING as _CAPTURING
from ipu_conformance.emulator.tensorflow.surface import unavailable_function as _unavailable_function

__all__ = ["capture_upstream_gradients"]

capture_upstream_gradients = _unavailable_function("capture_upstream_gradients", _CAPTURING, "args, tag=''")
