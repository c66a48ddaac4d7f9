"""Layers that capture the gradients of activations."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow.layers.capturing import CaptureActivationGradients, CaptureUpstreamGradients

__all__ = ["CaptureActivationGradients", "CaptureUpstreamGradients"]
