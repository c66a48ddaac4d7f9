"""Pipelines of functions: each stage on an IPU, several micro-batches on their way at once, one update per run."""

import functools
from typing import Any

from ipu_conformance.emulator.tensorflow.compile import pipeline as _compiled
from ipu_conformance.emulator.tensorflow.compile.pipeline import (
    OptimizerFunctionOutput,
    PipelineSchedule,
    PipelineStageOptions,
    RecomputationMode,
    recomputation_checkpoint,
)

__all__ = [
    "OptimizerFunctionOutput",
    "PipelineSchedule",
    "PipelineStageOptions",
    "RecomputationMode",
    "pipeline",
    "recomputation_checkpoint",
]


@functools.wraps(_compiled.pipeline)
def pipeline(*args: Any, **kwargs: Any) -> Any:
    if "pipeline_depth" in kwargs:
        from ipu_conformance.emulator.tensorflow.legacy import pipelines

        kwargs = pipelines.renamed(kwargs, args[1] if len(args) > 1 else None)
    return _compiled.pipeline(*args, **kwargs)
