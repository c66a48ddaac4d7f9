"""Ways for an estimator to be wrong: its rules, its loops and steps, what it feeds, and what it hands to the host."""

from __future__ import annotations

import contextlib
from typing import Any, Callable

from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.faults.catalogue import Fault, always, never, where
from ipu_conformance.emulator.faults.decisions import tensorflow_estimator

POINT = tensorflow_estimator.point


def _for(name: str) -> Callable[..., Any]:
    """What holds for one name is not checked."""
    return lambda value, **context: False if context["name"] == name else value


def _without_hooks(mode: str) -> Callable[..., Any]:
    return lambda value, **context: () if context["mode"] == mode else value


def _one_more(value: Any, **context: Any) -> Any:
    return value + 1


def _rounded_down(value: Any, steps: int, each: int, **context: Any) -> Any:
    return max(0, steps // each)


def _reversed(value: Any, **context: Any) -> Any:
    return value[::-1]


def _no_scope(value: Any, **context: Any) -> Any:
    return lambda device: contextlib.nullcontext()


def _first_device(value: Any, **context: Any) -> Any:
    return lambda device: value("/device:IPU:0")


def _one_ipu(value: Any, **context: Any) -> Any:
    from ipu_conformance.emulator.tensorflow.api.config import IPUConfig

    return IPUConfig()


def _first_micro_batch(value: Any, **context: Any) -> Any:
    return lambda leaf: leaf[0]


def _zeros(value: Any, **context: Any) -> Any:
    import tensorflow as tf

    return tf.zeros_like(value)


def _doubled_tensors(value: Any, **context: Any) -> Any:
    return lambda leaf: 2 * value(leaf)


for _name, _rule, _area, _what, _wrong in (
    # Steps and loops
    ("estimator-steps-cut", "steps-multiple", "plan", "steps that are not a multiple of the loop are accepted", never),
    ("estimator-max-steps-down", "loops-rounded", "plan", "max_steps is rounded down to whole loops", _rounded_down),
    ("estimator-one-loop-more", "loops-rounded", "plan", "a training has one loop more than it should", _one_more),
    ("estimator-steps-are-loops", "step-count", "plan", "the global step counts loops", always(1)),
    ("estimator-steps-not-counted", "step-count", "plan", "the global step does not grow", always(0)),
    ("estimator-step-counted-twice", "step-read-only", "plan", "a model function may count steps, too",
     never),
    ("estimator-endless-evaluation", "evaluation-steps-required", "plan", "an evaluation needs no steps",
     never),
    ("estimator-evaluation-longer", "evaluation-loops", "plan", "an evaluation has one loop more than it should",
     _one_more),
    ("estimator-checkpoints-late", "steps-per-run", "weights", "checkpoints are saved by loops, not by steps",
     always(1)),
    ("estimator-data-end-hidden", "data-end-refused", "streams", "data that end within a loop end a training",
     never),
    # What the user returns and asks for
    ("estimator-any-config", "config-required", "plan", "any configuration makes an estimator", never),
    ("estimator-any-spec", "spec-required", "plan", "a model function may return anything", never),
    ("estimator-any-input", "data-set-required", "streams", "an input function may return anything",
     never),
    ("estimator-labels-dropped", "labels-taken", "streams", "labels that a model function does not take are dropped",
     never),
    ("estimator-metrics-twice", "metrics-exclusive", "plan", "metrics are both on the host and on the device",
     never),
    ("estimator-any-metrics", "pair-required", "plan", "eval_metrics may be anything", _for("eval_metrics")),
    ("estimator-any-host-call", "pair-required", "plan", "host_call may be anything", _for("host_call")),
    ("estimator-host-call-in-loop", "host-call-refused", "plan", "host_call is accepted in longer loops",
     never),
    ("estimator-no-prediction", "predictions-positive", "plan", "a number of predictions may be 0", never),
    # The run configuration
    ("estimator-loop-of-none", "positive", "plan", "loops without steps are accepted", _for("iterations_per_loop")),
    ("estimator-no-replicas", "positive", "plan", "no replicas are accepted", _for("num_replicas")),
    ("estimator-no-shards", "positive", "plan", "no shards are accepted", _for("num_shards")),
    ("estimator-any-ipus", "ipus-match", "plan", "replicas and shards need not be the IPUs", never),
    ("estimator-shards-unchecked", "shards-checked", "plan", "a model may use more IPUs than its shards",
     never),
    ("estimator-options-ignored", "configured", "plan", "the options of the run configuration are not put in force",
     _one_ipu),
    ("estimator-on-the-host", "scope", "plan", "the model function is built in no scope", _no_scope),
    ("estimator-first-device", "scope", "plan", "the model function is always built for the first device",
     _first_device),
    # Replicas and losses
    ("estimator-replicas-apart", "reduction-required", "reduce", "replicas that never meet are accepted",
     never),
    ("estimator-loss-summed", "loop-loss", "streams", "the loss of a loop is the sum over its steps",
     lambda value, total, **context: total),
    ("estimator-loss-of-one-replica", "replica-mean", "reduce", "the loss is that of the first replica",
     lambda value, own, **context: own),
    # What comes back to the host
    ("estimator-metrics-first-only", "samples", "streams", "metrics on the host see one micro-batch of a loop",
     _first_micro_batch),
    ("estimator-device-metrics-lost", "metric-after-loop", "streams", "metrics of the device stay at 0", _zeros),
    ("estimator-host-call-skipped", "host-call", "update", "what host_call returns is not run", always([])),
    ("estimator-host-call-doubled", "host-call-joined", "update", "host_call gets doubled tensors",
     _doubled_tensors),
    ("estimator-predictions-go-on", "predictions-end", "streams", "num_predictions does not end predictions",
     never),
    ("estimator-predictions-end", "predictions-end", "streams", "there is one prediction only", always(True)),
    ("estimator-predictions-reversed", "predictions-order", "streams", "predictions of a loop come in reverse order",
     _reversed),
    ("estimator-keys-ignored", "predict-keys", "streams", "all predictions come back, whatever was asked for",
     always(None)),
    ("estimator-batches-whole", "single-examples", "streams", "predictions are whole batches", never),
    ("estimator-batches-parted", "single-examples", "streams", "predictions are never whole batches",
     always(True)),
    ("estimator-predicts-with-labels", "predict-labels", "streams", "labels are given where predictions are made",
     lambda value, labels, **context: labels),
    # Around the loop
    ("estimator-training-hooks-lost", "spec-hooks", "plan", "a model function's hooks for training are not called",
     _without_hooks("train")),
    ("estimator-evaluation-hooks-lost", "spec-hooks", "plan",
     "a model function's hooks for evaluation are not called", _without_hooks("evaluate")),
    ("estimator-prediction-hooks-lost", "spec-hooks", "plan",
     "a model function's hooks for prediction are not called", _without_hooks("predict")),
    ("estimator-warm-start-cold", "warm-start", "weights", "a warm start begins with initial weights",
     always(None)),
    ("estimator-logs-always", "logging-due", "streams", "a hook logs every loop", always(True)),
    ("estimator-logs-again", "logged-once", "streams", "a hook logs in two places", never),
    ("estimator-report-of-inference", "report-training", "ir", "the report of a training tells of no training",
     never),
):  # fmt: skip
    catalogue.register(Fault(_name, _area, POINT, _what, where(_rule, _wrong)), __name__)
