"""The emulated ``keras.ipu``: pipeline stages, and the methods that models have in a strategy's scope."""

from ipu_conformance.emulator.tensorflow.keras.assignment import (
    FunctionalLayerPipelineStageAssignment,
    FunctionalNestedModelPipelineStageAssignment,
    ModelLayerPipelineStageAssignment,
    SequentialLayerPipelineStageAssignment,
)
from ipu_conformance.emulator.tensorflow.keras.options import ReplicatedMetricReductionMethod
from ipu_conformance.emulator.tensorflow.keras.stages import PipelineStage
from ipu_conformance.emulator.tensorflow.surface import lazy as _lazy

__all__ = [
    "FunctionalLayerPipelineStageAssignment",
    "FunctionalNestedModelPipelineStageAssignment",
    "ModelLayerPipelineStageAssignment",
    "PipelineStage",
    "ReplicatedMetricReductionMethod",
    "SequentialLayerPipelineStageAssignment",
]

__getattr__, __dir__ = _lazy(
    __name__, members=dict.fromkeys(("ALSOptimizer", "ALSOptimizerGradientAccumulationWrapper"), "optimizers")
)
