"""Tapes that capture the gradients of activations, which the emulator does not."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow.surface import CAPTURING as _CAPTURING
from ipu_conformance.emulator.tensorflow.surface import unavailable_class as _unavailable_class

__all__ = ["GradientCaptureContext", "GradientCaptureTape", "num_gradient_collection_tapes"]

_CONTEXT = {"__enter__": "", "__exit__": "typ, value, traceback", "captured_gradients": ""}
GradientCaptureContext = _unavailable_class("GradientCaptureContext", _CAPTURING, "", _CONTEXT)
GradientCaptureTape = _unavailable_class(
    "GradientCaptureTape",
    _CAPTURING,
    "persistent=False, watch_accessed_variables=True",
    {**_CONTEXT, "gradient": "target, sources, output_gradients=None, unconnected_gradients='none'"},
)


def num_gradient_collection_tapes() -> int:
    """How many such tapes are recording: none."""
    return 0
