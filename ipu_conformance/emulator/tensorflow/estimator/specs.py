"""What the model function of an estimator returns: for a loop, or for the stages of a pipeline."""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf
from tensorflow.python.training import session_run_hook

from ipu_conformance.emulator.faults.decisions import tensorflow_estimator as decide
from ipu_conformance.emulator.tensorflow.estimator.run_config import EstimatorSpec, ModeKeys, checks
from ipu_conformance.emulator.tensorflow.run.accumulation import GradientAccumulationReductionMethod


class _LoopFields(NamedTuple):
    """The parts of an IPUEstimatorSpec."""

    mode: str
    predictions: Any
    loss: Any
    train_op: Any
    eval_metric_ops: Any
    eval_metrics: Any
    host_call: Any
    training_hooks: Tuple[Any, ...]
    evaluation_hooks: Tuple[Any, ...]
    prediction_hooks: Tuple[Any, ...]


class IPUEstimatorSpec(_LoopFields):
    """Stock's EstimatorSpec with what the host does with tensors of the device.

    ``eval_metrics`` and ``host_call`` are a function and the tensors that it gets, listed or named.
    """

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        predictions: Any = None,
        loss: Any = None,
        train_op: Any = None,
        eval_metric_ops: Any = None,
        eval_metrics: Any = None,
        host_call: Any = None,
        training_hooks: Any = None,
        evaluation_hooks: Any = None,
        prediction_hooks: Any = None,
    ) -> IPUEstimatorSpec:
        """Refuses what the mode lacks, as stock does."""
        if decide("metrics-exclusive", eval_metrics is not None and bool(eval_metric_ops)):
            raise ValueError(
                "Both `eval_metrics` and `eval_metric_ops` are given; leave out those for the device, or those for the "
                "host."
            )
        if train_op is not None or host_call is None:
            train_op = checks._validate_estimator_spec_train_op(train_op, mode)
        return super().__new__(
            cls,
            mode,
            checks._validate_estimator_spec_predictions(predictions, mode),
            checks._validate_estimator_spec_loss(loss, mode),
            train_op,
            checks._validate_eval_metric_ops(_of_graph(eval_metric_ops)),
            _function_and_tensors("eval_metrics", eval_metrics),
            _function_and_tensors("host_call", host_call),
            tuple(checks._validate_estimator_spec_hooks(training_hooks)),
            tuple(checks._validate_estimator_spec_hooks(evaluation_hooks)),
            tuple(checks._validate_estimator_spec_hooks(prediction_hooks)),
        )


def of_model_fn(returned: Any) -> IPUEstimatorSpec:
    """What a model function returned, which may be stock's EstimatorSpec."""
    if isinstance(returned, IPUEstimatorSpec):
        return returned
    if decide("spec-required", not isinstance(returned, EstimatorSpec)):
        raise ValueError(
            f"The model_fn returned {type(returned).__name__}; it must return an IPUEstimatorSpec or an EstimatorSpec."
        )
    return IPUEstimatorSpec(
        mode=returned.mode,
        predictions=returned.predictions,
        loss=returned.loss,
        train_op=returned.train_op,
        eval_metric_ops=returned.eval_metric_ops,
        training_hooks=(*returned.training_hooks, *returned.training_chief_hooks),
        evaluation_hooks=returned.evaluation_hooks,
        prediction_hooks=returned.prediction_hooks,
    )


def _of_graph(metric_ops: Any) -> Any:
    """Updates that are given as the variables which they write, as the operations that are meant."""
    if not isinstance(metric_ops, dict):
        return metric_ops
    return {name: _operation(metric) for name, metric in metric_ops.items()}


def _operation(metric: Any) -> Any:
    if isinstance(metric, tuple) and len(metric) == 2 and isinstance(metric[1], tf.Variable):
        return metric[0], metric[1].op
    return metric


def _function_and_tensors(name: str, given: Any) -> Any:
    if given is None:
        return None
    pair = isinstance(given, (tuple, list)) and len(given) == 2 and callable(given[0])
    if decide("pair-required", not pair, name=name):
        raise ValueError(f"`{name}` is {given!r}; it must be a function and the tensors that it gets.")
    return tuple(given)


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


class _PipelineFields(NamedTuple):
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


class IPUPipelineEstimatorSpec(_PipelineFields):
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
