"""What the model function of an estimator returns: for a loop, or for the stages of a pipeline."""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf
from tensorflow.python.training import session_run_hook

from ipu_conformance.emulator.tensorflow.estimator.run_config import EstimatorSpec, ModeKeys, checks
from ipu_conformance.emulator.tensorflow.refusals import estimator as refusals
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
        return super().__new__(
            cls,
            mode,
            checks._validate_estimator_spec_predictions(predictions, mode),
            checks._validate_estimator_spec_loss(loss, mode),
            checks._validate_estimator_spec_train_op(train_op, mode),
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
    refusals.SPEC(returned=returned, kind=EstimatorSpec)
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
    refusals.FUNCTION_AND_TENSORS[name](given=given)
    refusals.CALL_SIZE[name](given=given)
    return given


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
        if "pipeline_depth" in pipeline_op_kwargs:
            from ipu_conformance.emulator.tensorflow.legacy import pipelines

            pipeline_op_kwargs = pipelines.renamed(pipeline_op_kwargs, gradient_accumulation_count)
            gradient_accumulation_count = pipeline_op_kwargs.pop("gradient_accumulation_count")
        refusals.MODE(mode=mode, modes=MODES)
        refusals.STAGES(stages=computational_stages)
        count = _checked_count(gradient_accumulation_count)
        _check_function(mode == ModeKeys.TRAIN, "optimizer_function", optimizer_function)
        _check_function(mode == ModeKeys.EVAL, "eval_metrics_fn", eval_metrics_fn)
        for name in OWN:
            refusals.OWN_OPTION(name=name, options=pipeline_op_kwargs)
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


def _checked_count(count: Any) -> int:
    refusals.COUNT_MISSING(count=count)
    refusals.COUNT_TYPE(count=count)
    refusals.COUNT(count=count)
    return int(count)


def _check_function(needed: bool, name: str, function: Any) -> None:
    refusals.FUNCTION_MISSING[name](needed=needed, function=function)
    refusals.FUNCTION_TYPE[name](function=function)


def _checked_hooks(name: str, given: Optional[Sequence[Any]]) -> Tuple[Any, ...]:
    hooks = tuple(given or ())
    for hook in hooks:
        refusals.HOOK(name=name, hook=hook, kind=session_run_hook.SessionRunHook)
    return hooks
