"""What the model function of a pipelined estimator returns."""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence, Tuple

from tensorflow.python.training import session_run_hook

from ipu_conformance.emulator.faults.decisions import tensorflow_estimator as decide
from ipu_conformance.emulator.tensorflow.api.ops.gradient_accumulation import GradientAccumulationReductionMethod
from ipu_conformance.emulator.tensorflow.estimator.stock import ModeKeys

MODES = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)
OWN = (
    "inputs",
    "infeed_queue",
    "outfeed_queue",
    "repeat_count",
    "outfeed_loss",
    "outfeed_mask",
    "accumulate_outfeed",
    "accumulate_outfeed_dtype",
)
"""The options of a pipeline that its estimator sets."""


class _Fields(NamedTuple):
    """The parts of an IPUPipelineEstimatorSpec."""

    mode: str
    computational_stages: Sequence[Callable[..., Any]]
    gradient_accumulation_count: int
    eval_metrics_fn: Optional[Callable[..., Any]]
    optimizer_function: Optional[Callable[..., Any]]
    device_mapping: Optional[Sequence[int]]
    loss_accumulator_dtype: Any
    training_hooks: Tuple[Any, ...]
    evaluation_hooks: Tuple[Any, ...]
    prediction_hooks: Tuple[Any, ...]
    reduction_method: Any
    pipeline_op_kwargs: Dict[str, Any]


class IPUPipelineEstimatorSpec(_Fields):
    """The stages of a model, how many micro-batches a run of the pipeline has, and what is done with the outputs.

    ``optimizer_function`` and ``eval_metrics_fn`` take what the last stage returns. All other options are those of
    ``pipelining_ops.pipeline``.
    """

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        computational_stages: Sequence[Callable[..., Any]],
        gradient_accumulation_count: Optional[int] = None,
        eval_metrics_fn: Optional[Callable[..., Any]] = None,
        optimizer_function: Optional[Callable[..., Any]] = None,
        device_mapping: Optional[Sequence[int]] = None,
        loss_accumulator_dtype: Any = None,
        training_hooks: Optional[Sequence[Any]] = None,
        evaluation_hooks: Optional[Sequence[Any]] = None,
        prediction_hooks: Optional[Sequence[Any]] = None,
        reduction_method: Any = GradientAccumulationReductionMethod.SUM,
        **pipeline_op_kwargs: Any,
    ) -> IPUPipelineEstimatorSpec:
        if decide("pipeline-mode-known", mode not in MODES):
            raise ValueError(f"The mode of an IPUPipelineEstimatorSpec is {mode!r}; it must be one of {MODES}.")
        _check_stages(computational_stages)
        count = _checked_count(gradient_accumulation_count)
        _check_function(mode == ModeKeys.TRAIN, "optimizer_function", optimizer_function, "training")
        _check_function(mode == ModeKeys.EVAL, "eval_metrics_fn", eval_metrics_fn, "evaluation")
        for name in OWN:
            if decide("pipeline-own-options", name in pipeline_op_kwargs):
                raise ValueError(f"Found `{name}` in the options of the pipeline: the estimator sets it, leave it out.")
        return super().__new__(
            cls,
            mode,
            computational_stages,
            count,
            eval_metrics_fn,
            optimizer_function,
            device_mapping,
            loss_accumulator_dtype,
            _checked_hooks("training_hooks", training_hooks),
            _checked_hooks("evaluation_hooks", evaluation_hooks),
            _checked_hooks("prediction_hooks", prediction_hooks),
            reduction_method,
            pipeline_op_kwargs,
        )


def _check_stages(given: Any) -> None:
    listed = isinstance(given, (list, tuple)) and all(callable(stage) for stage in given)
    if decide("pipeline-stages-typed", not listed):
        raise TypeError(f"`computational_stages` is {given!r}; pass a list of functions, one for each stage.")


def _checked_count(given: Any) -> int:
    what = "`gradient_accumulation_count`, the number of micro-batches in a run of the pipeline,"
    if given is None:
        given = decide("pipeline-count-required", None)
    if given is None:
        raise ValueError(f"{what} is missing from the IPUPipelineEstimatorSpec.")
    if decide("pipeline-count-typed", isinstance(given, bool) or not isinstance(given, int)):
        raise TypeError(f"{what} is {given!r}; it must be a whole number.")
    if decide("pipeline-count-positive", int(given) < 1):
        raise ValueError(f"{what} is {given}; it must be at least 1.")
    return int(given)


def _check_function(needed: bool, name: str, given: Any, doing: str) -> None:
    if given is None:
        if decide(f"pipeline-{name}-required", needed):
            raise ValueError(f"An IPUPipelineEstimatorSpec for {doing} must contain `{name}`.")
    elif decide(f"pipeline-{name}-typed", not callable(given)):
        raise TypeError(f"`{name}` is {given!r}; pass a function of what the last stage returns.")


def _checked_hooks(name: str, given: Optional[Sequence[Any]]) -> Tuple[Any, ...]:
    hooks = tuple(given or ())
    for hook in hooks:
        if decide("pipeline-hooks-typed", not isinstance(hook, session_run_hook.SessionRunHook)):
            raise TypeError(f"`{name}` holds {hook!r}; all hooks must be SessionRunHook instances.")
    return decide("pipeline-hooks", hooks, name=name)
