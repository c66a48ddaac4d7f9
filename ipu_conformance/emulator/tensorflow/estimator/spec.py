"""What a model function returns for an IPUEstimator."""

from __future__ import annotations

from typing import Any, NamedTuple, Tuple

import tensorflow as tf

from ipu_conformance.emulator.faults.decisions import tensorflow_estimator as decide
from ipu_conformance.emulator.tensorflow.estimator import stock


class _Fields(NamedTuple):
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


class IPUEstimatorSpec(_Fields):
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
        checks = stock.model_fn
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
    if decide("spec-required", not isinstance(returned, stock.EstimatorSpec)):
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
