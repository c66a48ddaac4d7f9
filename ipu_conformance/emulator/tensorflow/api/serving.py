"""Exports for TensorFlow Serving; see ``run.serving``."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import tensorflow as _tf

from ipu_conformance.emulator.tensorflow.compile import pipeline as _pipeline
from ipu_conformance.emulator.tensorflow.refusals import serving as _refusals
from ipu_conformance.emulator.tensorflow.run import serving as _serving

__all__ = ["export_keras", "export_pipeline", "export_single_step"]


def export_single_step(
    predict_step: Callable[..., Any],
    export_dir: str,
    iterations: int,
    predict_step_signature: Any = None,
    input_dataset: Any = None,
    output_names: Any = None,
    preprocessing_step: Optional[Callable[..., Any]] = None,
    preprocessing_step_signature: Any = None,
    postprocessing_step: Optional[Callable[..., Any]] = None,
    postprocessing_step_signature: Any = None,
    purge_export_dir: bool = False,
) -> Any:
    """Write a SavedModel of a step with its variables frozen, and return the function that it holds."""
    return _serving.export(
        [predict_step], export_dir, None, predict_step_signature, input_dataset, output_names, preprocessing_step,
        preprocessing_step_signature, postprocessing_step, postprocessing_step_signature, purge_export_dir,
    )  # fmt: skip


def export_pipeline(
    computational_stages: Sequence[Callable[..., Any]],
    export_dir: str,
    iterations: int,
    inputs: Optional[Sequence[Any]] = None,
    device_mapping: Optional[Sequence[int]] = None,
    pipeline_schedule: Any = None,
    poplar_options: Any = None,
    name: Optional[str] = None,
    predict_step_signature: Any = None,
    input_dataset: Any = None,
    output_names: Any = None,
    preprocessing_step: Optional[Callable[..., Any]] = None,
    preprocessing_step_signature: Any = None,
    postprocessing_step: Optional[Callable[..., Any]] = None,
    postprocessing_step_signature: Any = None,
    purge_export_dir: bool = False,
) -> Any:
    """Write a SavedModel of the stages of a pipeline, and return the function that it holds."""
    mapping = _pipeline.mapping_of(computational_stages, device_mapping)
    broken = _pipeline.misfit(mapping, _pipeline.schedule_of(pipeline_schedule), iterations, False)
    if broken is not None:
        raise _tf.errors.FailedPreconditionError(None, None, broken)
    return _serving.export(
        computational_stages, export_dir, inputs, predict_step_signature, input_dataset, output_names,
        preprocessing_step, preprocessing_step_signature, postprocessing_step, postprocessing_step_signature,
        purge_export_dir,
    )  # fmt: skip


def export_keras(
    model: Any,
    export_dir: str,
    batch_size: Optional[int] = None,
    output_names: Any = None,
    preprocessing_step: Optional[Callable[..., Any]] = None,
    preprocessing_step_signature: Any = None,
    postprocessing_step: Optional[Callable[..., Any]] = None,
    postprocessing_step_signature: Any = None,
    purge_export_dir: bool = False,
) -> Any:
    """Write a SavedModel of a Keras model, and return the function that it holds."""
    _refusals.NOT_OF_A_STRATEGY(model=model)
    return model.export_for_ipu_serving(
        export_dir, batch_size, output_names, preprocessing_step, preprocessing_step_signature, postprocessing_step,
        postprocessing_step_signature, purge_export_dir,
    )  # fmt: skip
