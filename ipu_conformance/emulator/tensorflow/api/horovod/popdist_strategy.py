"""The strategy for several processes under its earlier name."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow.api.distributed.popdist_strategy import PopDistStrategy

__all__ = ["PopDistStrategy"]
