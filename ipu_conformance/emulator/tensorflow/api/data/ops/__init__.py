"""The operations behind the vendor's data sets."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow.api.data.ops import dataset_ops

__all__ = ["dataset_ops"]
