"""What models have on the IPU by their kind: subclassed, made of inputs and outputs, or a chain of layers."""

from ipu_conformance.emulator.tensorflow.keras.assignment import (
    FunctionalLayerPipelineStageAssignment,
    FunctionalNestedModelPipelineStageAssignment,
    ModelLayerPipelineStageAssignment,
    NestedModelPipelineStageAssignment,
    SequentialLayerPipelineStageAssignment,
    SequentialNestedModelPipelineStageAssignment,
)
from ipu_conformance.emulator.tensorflow.keras.extension import FunctionalExtension, ModelExtension, SequentialExtension
from ipu_conformance.emulator.tensorflow.keras.options import ReplicatedMetricReductionMethod
from ipu_conformance.emulator.tensorflow.keras.stages import PipelineStage
from ipu_conformance.emulator.tensorflow.surface import lazy as _lazy

__all__ = [
    "FunctionalExtension",
    "FunctionalLayerPipelineStageAssignment",
    "FunctionalNestedModelPipelineStageAssignment",
    "ModelExtension",
    "ModelLayerPipelineStageAssignment",
    "NestedModelPipelineStageAssignment",
    "PipelineStage",
    "ReplicatedMetricReductionMethod",
    "SequentialExtension",
    "SequentialLayerPipelineStageAssignment",
    "SequentialNestedModelPipelineStageAssignment",
]

__getattr__, __dir__ = _lazy(__name__)
