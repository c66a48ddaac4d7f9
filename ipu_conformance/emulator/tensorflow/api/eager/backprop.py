"""Tapes and contexts that capture gradients of activations."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow.run import gradient_capture as _gradient_capture
from ipu_conformance.emulator.tensorflow.run.gradient_capture import GradientCaptureContext, GradientCaptureTape

__all__ = ["GradientCaptureContext", "GradientCaptureTape", "num_gradient_collection_tapes"]


def num_gradient_collection_tapes() -> int:
    """How many such tapes and contexts are open."""
    return _gradient_capture.number_open()
