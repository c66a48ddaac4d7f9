"""The estimator that runs the stages of a model as a pipeline on several IPUs."""

from __future__ import annotations

import inspect
from typing import Any, Callable

from tensorflow.python.util import function_utils

from ipu_conformance.emulator.faults.decisions import tensorflow_estimator as decide
from ipu_conformance.emulator.tensorflow.api.ops.ipu_infeed_queue import IPUInfeedQueue
from ipu_conformance.emulator.tensorflow.estimator.base import BaseEstimator
from ipu_conformance.emulator.tensorflow.estimator.pipeline import PipelineProgram
from ipu_conformance.emulator.tensorflow.estimator.pipeline_spec import IPUPipelineEstimatorSpec
from ipu_conformance.emulator.tensorflow.estimator.program import Call, Program

__all__ = ["IPUPipelineEstimator", "IPUPipelineEstimatorSpec"]

TAKEN = ("mode", "params", "config")
"""What a model function may ask for: features and labels go to the first stage."""


class IPUPipelineEstimator(BaseEstimator):
    """Trains, evaluates and predicts with loops in which a pipeline runs ``iterations_per_loop`` micro-batches."""

    def __init__(
        self, model_fn: Any, model_dir: Any = None, config: Any = None, params: Any = None, warm_start_from: Any = None
    ) -> None:
        super().__init__(_without_features(model_fn), model_dir, config, params, warm_start_from)

    def _program(self, call: Call) -> Program:
        return PipelineProgram(call)

    def _call_model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> Any:
        if not isinstance(features, IPUInfeedQueue):
            raise NotImplementedError(
                "A pipeline runs on IPUs only, and a SavedModel runs on the host: export an IPUEstimator, whose "
                "model_fn takes features."
            )
        return super()._call_model_fn(features, labels, mode, config)


def _without_features(model_fn: Any) -> Callable[..., Any]:
    """A model function as stock wants it, around one that takes no features."""
    if not callable(model_fn):
        raise ValueError(f"`model_fn` is {model_fn!r}; pass a function.")
    asked = decide("pipeline-arguments", function_utils.fn_args(model_fn))
    for name in asked:
        if name not in TAKEN:
            raise ValueError(
                f"The model_fn of an IPUPipelineEstimator takes {name!r}; it may take {', '.join(TAKEN)}: the elements "
                "of the data set are the arguments of the first stage."
            )

    def called(features: Any, labels: Any = None, **known: Any) -> Any:
        return model_fn(**known)

    # Stock asks which arguments a model function has: it wants features, and params only if there are any.
    names = ("features", "labels", *asked)
    signature = inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names])
    called.__signature__ = signature  # type: ignore[attr-defined]
    return called
