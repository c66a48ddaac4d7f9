"""Ways for float16, dynamic-to-static, predictors, the model runtime and custom ops of Paddle to be wrong."""

from __future__ import annotations

from typing import Any

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.faults import Fault, always, at, never, where
from ipu_conformance.emulator.faults.decisions import paddle_host

POINT = paddle_host.point


def _exact(value: Any, *, exact: Any, **context: Any) -> Any:
    return exact


for _fault in (
    Fault("half-program-runs-in-float32", "numerics", POINT, "programs in float16 compute in float32",
          at("float16 is float16", lambda value: frozenset())),
    Fault("half-feed-not-rounded", "numerics", POINT, "feeds of float16 variables keep the bits of a float32",
          where("round feeds", _exact)),
    Fault("half-arrives-as-float32", "numerics", POINT, "the host gets float16 variables as float32",
          where("halves arrive as float16", _exact)),
    Fault("stochastic-rounding-ignored", "numerics", POINT, "the option for stochastic rounding has no effect",
          at("round at random", never)),
    Fault("half-weights-become-float32", "weights", POINT, "weights that the host holds in float16 are float32",
          at("weights follow the host", never)),
    Fault("master-weight-left-behind", "update", POINT, "optimizers update the float16 weight and not its master",
          at("masters are updated", never)),
    Fault("unscaled-gradient-rounded", "numerics", POINT, "gradients are rounded when the loss scale is taken out",
          at("divide without rounding", never)),
    Fault("call-outputs-reversed", "streams", POINT, "a call of a model returns its outputs in the wrong order",
          at("outputs of a call", lambda value: value[::-1])),
    Fault("model-cut-into-programs", "plan", POINT, "a model becomes several programs, each compiled by itself",
          at("one program", never)),
    Fault("host-differentiates-again", "update", POINT, "what a call returned can be differentiated on the host",
          at("no gradient on the host", never)),
    Fault("predictor-ignores-batches", "streams", POINT, "a predictor has one batch per step",
          at("predictor's batches per step", lambda value: 1)),
    Fault("predictor-ignores-replicas", "streams", POINT, "a predictor has one replica",
          at("predictor's replicas", lambda value: 1)),
    Fault("predictor-ignores-float16", "numerics", POINT, "a predictor computes in float32",
          at("predictor in float16", never)),
    Fault("predictor-shares-inputs", "streams", POINT, "a handle keeps the array itself that is copied into it",
          where("copy inputs", lambda value, given, **context: given)),
    Fault("predictor-always-on-ipu", "plan", POINT, "predictors run on the IPU without enable_ipu",
          at("predictor on the IPU", always(True))),
    Fault("timeout-ignored", "streams", POINT, "the model runtime refuses small batches in spite of a timeout",
          at("timeout", lambda value: 0.0)),
    Fault("timeout-always", "streams", POINT, "the model runtime completes small batches without a timeout",
          at("timeout", lambda value: 1.0)),
    Fault("request-not-cut", "streams", POINT, "the answer holds what completed the batch",
          at("request fills the batch", always(True))),
    Fault("requests-may-disagree", "streams", POINT, "inputs of one request may have unequal numbers of samples",
          at("feeds agree", never)),
    Fault("training-is-served", "plan", POINT, "the model runtime takes programs that train",
          at("serve inference alone", never)),
    Fault("unknown-custom-op-accepted", "ir", POINT, "a custom op that nobody registered is accepted",
          at("custom op is registered", always(True))),
    Fault("sdk-sources-accepted", "ir", POINT, "C++ sources for the IPU go to the host's compiler",
          at("source is for the IPU", never)),
):  # fmt: skip
    faults.register(_fault, __name__)
