"""The emulated ``keras.ipu``: pipeline stages, and the methods that models have in a strategy's scope."""

from __future__ import annotations

import importlib
from typing import Any

from ipu_conformance.emulator.tensorflow.keras.assignment import (
    FunctionalLayerPipelineStageAssignment,
    ModelLayerPipelineStageAssignment,
)
from ipu_conformance.emulator.tensorflow.keras.options import ReplicatedMetricReductionMethod
from ipu_conformance.emulator.tensorflow.keras.stages import PipelineStage

__all__ = [
    "FunctionalLayerPipelineStageAssignment",
    "ModelLayerPipelineStageAssignment",
    "PipelineStage",
    "ReplicatedMetricReductionMethod",
]

LATER = ("layers", "losses")
"""The modules of the vendor's package that are imported when they are first asked for: they need TensorFlow."""


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
