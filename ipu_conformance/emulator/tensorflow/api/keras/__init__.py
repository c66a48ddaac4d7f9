"""The emulated ``keras.ipu``: pipeline stages, and the methods that models have in a strategy's scope."""

from typing import Any

from ipu_conformance.emulator.tensorflow.keras.assignment import (
    FunctionalLayerPipelineStageAssignment,
    FunctionalNestedModelPipelineStageAssignment,
    ModelLayerPipelineStageAssignment,
    NestedModelPipelineStageAssignment,
    SequentialLayerPipelineStageAssignment,
    SequentialNestedModelPipelineStageAssignment,
)
from ipu_conformance.emulator.tensorflow.keras.options import ReplicatedMetricReductionMethod
from ipu_conformance.emulator.tensorflow.keras.stages import PipelineStage
from ipu_conformance.emulator.tensorflow.surface import lazy as _lazy

__all__ = [
    "FunctionalLayerPipelineStageAssignment",
    "FunctionalNestedModelPipelineStageAssignment",
    "ModelLayerPipelineStageAssignment",
    "NestedModelPipelineStageAssignment",
    "PipelineStage",
    "ReplicatedMetricReductionMethod",
    "SequentialLayerPipelineStageAssignment",
    "SequentialNestedModelPipelineStageAssignment",
]

_find, __dir__ = _lazy(
    __name__, members=dict.fromkeys(("ALSOptimizer", "ALSOptimizerGradientAccumulationWrapper"), "optimizers")
)

_OLD_MODELS = (
    "Model", "PipelineModel", "PipelineSequential", "PipelinedModel", "Sequential", "SequentialPipelineModel",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    """A module or a member of one; else a model of an earlier SDK, whose room is entered then."""
    if name in _OLD_MODELS:
        from ipu_conformance.emulator.tensorflow.legacy import keras_models

        return keras_models.MODELS[name]
    return _find(name)
