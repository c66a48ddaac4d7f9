"""Layers that capture the gradients of activations, which the emulator does not."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow.surface import CAPTURING as _CAPTURING
from ipu_conformance.emulator.tensorflow.surface import unavailable_class as _unavailable_class

__all__ = ["CaptureActivationGradients", "CaptureUpstreamGradients"]

_METHODS = {"build": "input_shape", "call": "inputs, *args, **kwargs", "from_config": "config", "get_config": ""}
CaptureActivationGradients = _unavailable_class(
    "CaptureActivationGradients", _CAPTURING, "layer, tag=None", {**_METHODS, "layer_is_supported": "layer"}
)
CaptureUpstreamGradients = _unavailable_class("CaptureUpstreamGradients", _CAPTURING, "layer, tag=None", _METHODS)
