"""The emulated ``keras.ipu``: pipeline stages, and the methods that models have in a strategy's scope."""

from __future__ import annotations

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
