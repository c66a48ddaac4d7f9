"""The emulated ``keras.ipu``: pipeline stages, and the methods that models have in a strategy's scope."""

from __future__ import annotations

import importlib
from typing import Any, List

from ipu_conformance.emulator.tensorflow.keras.assignment import (
    FunctionalLayerPipelineStageAssignment,
    FunctionalNestedModelPipelineStageAssignment,
    ModelLayerPipelineStageAssignment,
    SequentialLayerPipelineStageAssignment,
)
from ipu_conformance.emulator.tensorflow.keras.options import ReplicatedMetricReductionMethod
from ipu_conformance.emulator.tensorflow.keras.stages import PipelineStage

__all__ = [
    "FunctionalLayerPipelineStageAssignment",
    "FunctionalNestedModelPipelineStageAssignment",
    "ModelLayerPipelineStageAssignment",
    "PipelineStage",
    "ReplicatedMetricReductionMethod",
    "SequentialLayerPipelineStageAssignment",
]

LATER = ("extensions", "layers", "losses", "optimizers")
"""The modules of the vendor's package that are imported when they are first asked for: they need TensorFlow."""


OPTIMIZERS = ("ALSOptimizer", "ALSOptimizerGradientAccumulationWrapper")
"""What is also found in the package itself."""


def __getattr__(name: str) -> Any:
    if name in OPTIMIZERS:
        return getattr(importlib.import_module(f"{__name__}.optimizers"), name)
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> List[str]:
    return sorted({*globals(), *LATER, *OPTIMIZERS})
