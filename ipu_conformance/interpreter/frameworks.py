"""Ops that frameworks have and ONNX has not."""

from __future__ import annotations

from ipu_conformance.interpreter.calls import Table

FRAMEWORKS: Table = {}
"""Every such op by its type."""
