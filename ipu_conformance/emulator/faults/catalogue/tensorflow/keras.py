"""Ways for Keras models to be fed, cut, run and called back wrongly."""

from __future__ import annotations

from typing import Any

from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.faults.catalogue import Fault, always, never, rule
from ipu_conformance.emulator.faults.decisions import keras_model
from ipu_conformance.emulator.tensorflow.run import variables  # noqa: F401  it registers its hook point

POINT = keras_model.point


def _less_one(value: Any) -> Any:
    return max(value - 1, 1)


def _other_reduction(value: Any) -> Any:
    return type(value)["SUM" if value.name == "MEAN" else "MEAN"]


for _name, _area, _rule, _what, _wrong in (
    # Data
    ("keras-step-lost", "streams", "steps-per-replica", "the last step of every epoch is left out", _less_one),
    ("keras-any-execution", "streams", "steps-divide", "an execution need not divide the steps", never),
    ("keras-long-execution-refused", "streams", "execution-cut", "an execution is not cut to the steps", never),
    ("keras-remainder-silent", "streams", "remainder-warned", "nothing is said of batches that are dropped", never),
    ("keras-remainder-kept", "streams", "remainder-of-epoch", "an epoch begins with what the last one left",
     always(0)),
    ("keras-any-accumulation", "streams", "accumulation-divides", "an execution ends amid an accumulation", never),
    ("keras-generators-accepted", "streams", "generators-refused", "generators are drawn from", never),
    ("keras-partial-batch-accepted", "streams", "partial-batch-refused", "the last batch may be smaller", never),
    ("keras-shapes-unchecked", "streams", "shapes-checked", "a dimension may be unknown", never),
    ("keras-float64-kept", "numerics", "float64-narrowed", "float64 reaches the model", never),
    ("keras-size-unknown", "streams", "size-known", "data of unknown size is used without steps", never),
    # Programs
    ("keras-one-replica", "plan", "replicas", "all IPUs but those of one replica are idle", always(1)),
    ("keras-half-a-replica", "plan", "whole-replicas", "a device need not hold whole replicas", never),
    ("keras-any-count", "plan", "multiple-checked", "a schedule takes any number of micro-batches", never),
    ("keras-interleaved-shared", "plan", "interleaved-shared-refused", "interleaved stages share an IPU", never),
    ("keras-count-guessed", "plan", "count-required", "a pipeline trains without a count", never),
    ("keras-eager-accepted", "plan", "eager-refused", "a model runs eagerly", never),
    ("keras-batch-on-one-replica", "plan", "single-batch-refused", "one batch trains one replica alone", never),
    ("keras-first-options-stay", "plan", "options-take-effect", "options count for the first fit only", never),
    ("keras-own-step-ignored", "plan", "own-step-refused", "a pipeline ignores a model's own step", never),
    ("keras-statistics-apart", "weights", "program-loaded", "replicas evaluate with statistics of their own", never),
    # Options
    ("keras-reserved-accepted", "plan", "reserved-refused", "options that Keras sets can be overridden", never),
    ("keras-reduction-unchecked", "reduce", "reduction-checked", "any word is a reduction", never),
    ("keras-always-sum", "reduce", "reduction-method", "accumulated gradients are always added up", always("sum")),
    ("keras-metrics-otherwise", "streams", "metric-reduction", "metrics of replicas are reduced otherwise",
     _other_reduction),
    ("keras-accumulated-logs-added", "streams", "accumulated-logs-divisor", "accumulated logs are not divided",
     always(1)),
    ("keras-logs-of-first-step", "streams", "step-of-logs", "the logs of an execution are those of its first step",
     always(0)),
    # Stages
    ("keras-extended-everywhere", "plan", "extended", "models outside of a scope are extended", always(True)),
    ("keras-stage-without-scope", "plan", "stage-needs-scope", "stages can be used outside of a scope", never),
    ("keras-stages-nest", "plan", "stages-not-nested", "stages can be nested", never),
    ("keras-stage-of-call-lost", "plan", "stage-of-call", "layers forget the scope they are called in",
     always(None)),
    ("keras-layer-without-stage", "plan", "every-layer-staged", "a layer may have no stage", never),
    ("keras-stages-backwards", "plan", "stages-follow-data", "a stage may read from a later one", never),
    ("keras-stages-with-gaps", "plan", "stages-consecutive", "numbers of stages may be left out", never),
    ("keras-assignment-ignored", "plan", "stage-set", "an assignment puts all layers in stage 0", always(0)),
    ("keras-reset-ignored", "plan", "stage-reset", "a reset puts all layers in stage 0", always(0)),
    ("keras-summary-without-stages", "plan", "stage-printed", "the summary leaves the stages out", always(None)),
    ("keras-stages-not-regularised", "reduce", "stage-regularised", "stages leave their regularisers out", never),
    # Callbacks
    ("keras-last-step-called-only", "streams", "steps-called", "asynchronous callbacks see an execution's last step",
     lambda value: value[-1:]),
    ("keras-steps-called-backwards", "streams", "steps-called", "asynchronous callbacks see the last step first",
     lambda value: value[::-1]),
    ("keras-epoch-hurries", "streams", "epoch-waits", "an epoch ends before its steps are seen", never),
    ("keras-callback-error-lost", "streams", "callback-error", "an error in a callback is not raised", always(None)),
):  # fmt: skip
    catalogue.register(Fault(_name, _area, POINT, _what, rule(_rule, _wrong)), __name__)

_what = "what the host writes reaches replica 0 only"
catalogue.register(Fault("keras-host-writes-to-one", "weights", "variables.others", _what, always([])), __name__)
