"""Capturing the gradients of activations."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow.run.gradient_capture import capture_upstream_gradients

__all__ = ["capture_upstream_gradients"]
