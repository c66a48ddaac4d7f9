"""Training in several processes of the host: one process of the emulator has all replicas."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow.api.distributed import popdist_strategy

__all__ = ["popdist_strategy"]
