"""Ways for float16, dynamic-to-static, predictors, the model runtime and custom ops of Paddle to be wrong."""

from __future__ import annotations

from typing import Any

from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.faults.catalogue import Fault, always, never, rule, where
from ipu_conformance.emulator.faults.decisions import paddle_host

POINT = paddle_host.point


def _exact(value: Any, *, exact: Any, **context: Any) -> Any:
    return exact


for _fault in (
    Fault("half-program-runs-in-float32", "numerics", POINT, "programs in float16 compute in float32",
          rule("float16 is float16", lambda value: frozenset())),
    Fault("half-feed-not-rounded", "numerics", POINT, "feeds of float16 variables keep the bits of a float32",
          where("round feeds", _exact)),
    Fault("half-arrives-as-float32", "numerics", POINT, "the host gets float16 variables as float32",
          where("halves arrive as float16", _exact)),
    Fault("stochastic-rounding-ignored", "numerics", POINT, "the option for stochastic rounding has no effect",
          rule("round at random", never)),
    Fault("half-weights-become-float32", "weights", POINT, "weights that the host holds in float16 are float32",
          rule("weights follow the host", never)),
    Fault("master-weight-left-behind", "update", POINT, "optimizers update the float16 weight and not its master",
          rule("masters are updated", never)),
    Fault("unscaled-gradient-rounded", "numerics", POINT, "gradients are rounded when the loss scale is taken out",
          rule("divide without rounding", never)),
    Fault("call-outputs-reversed", "streams", POINT, "a call of a model returns its outputs in the wrong order",
          rule("outputs of a call", lambda value: value[::-1])),
    Fault("model-cut-into-programs", "plan", POINT, "a model becomes several programs, each compiled by itself",
          rule("one program", never)),
    Fault("host-differentiates-again", "update", POINT, "what a call returned can be differentiated on the host",
          rule("no gradient on the host", never)),
    Fault("predictor-ignores-batches", "streams", POINT, "a predictor has one batch per step",
          rule("predictor's batches per step", lambda value: 1)),
    Fault("predictor-ignores-replicas", "streams", POINT, "a predictor has one replica",
          rule("predictor's replicas", lambda value: 1)),
    Fault("predictor-ignores-float16", "numerics", POINT, "a predictor computes in float32",
          rule("predictor in float16", never)),
    Fault("predictor-shares-inputs", "streams", POINT, "a handle keeps the array itself that is copied into it",
          where("copy inputs", lambda value, given, **context: given)),
    Fault("predictor-always-on-ipu", "plan", POINT, "predictors run on the IPU without enable_ipu",
          rule("predictor on the IPU", always(True))),
    Fault("timeout-ignored", "streams", POINT, "the model runtime refuses small batches in spite of a timeout",
          rule("timeout", lambda value: 0.0)),
    Fault("timeout-always", "streams", POINT, "the model runtime completes small batches without a timeout",
          rule("timeout", lambda value: 1.0)),
    Fault("request-not-cut", "streams", POINT, "the answer holds what completed the batch",
          rule("request fills the batch", always(True))),
    Fault("requests-may-disagree", "streams", POINT, "inputs of one request may have unequal numbers of samples",
          rule("feeds agree", never)),
    Fault("training-is-served", "plan", POINT, "the model runtime takes programs that train",
          rule("serve inference alone", never)),
    Fault("unknown-custom-op-accepted", "ir", POINT, "a custom op that nobody registered is accepted",
          rule("custom op is registered", always(True))),
    Fault("sdk-sources-accepted", "ir", POINT, "C++ sources for the IPU go to the host's compiler",
          rule("source is for the IPU", never)),
):  # fmt: skip
    catalogue.register(_fault, __name__)
