"""Ways for float16, dynamic-to-static, predictors, the model runtime and custom ops of Paddle to be wrong."""

from __future__ import annotations

from typing import Any, Callable

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.faults import Fault, Wrong
from ipu_conformance.emulator.faults.decisions import paddle_host

POINT = paddle_host.point


def _at(rule: str, change: Callable[..., Any]) -> Wrong:
    """The decision of one rule is changed, all others are right."""

    def wrong(value: Any, *, rule: str, memory: Any, **context: Any) -> Any:
        return change(value, **context) if rule == wanted else value

    wanted = rule
    return wrong


def _never(value: Any, **context: Any) -> bool:
    return False


def _always(value: Any, **context: Any) -> bool:
    return True


def _exact(value: Any, *, exact: Any) -> Any:
    return exact


for _fault in (
    Fault("half-program-runs-in-float32", "numerics", POINT, "programs in float16 compute in float32",
          _at("float16 is float16", lambda value: frozenset())),
    Fault("half-feed-not-rounded", "numerics", POINT, "feeds of float16 variables keep the bits of a float32",
          _at("round feeds", _exact)),
    Fault("half-arrives-as-float32", "numerics", POINT, "the host gets float16 variables as float32",
          _at("halves arrive as float16", _exact)),
    Fault("stochastic-rounding-ignored", "numerics", POINT, "the option for stochastic rounding has no effect",
          _at("round at random", _never)),
    Fault("half-weights-become-float32", "weights", POINT, "weights that the host holds in float16 are float32",
          _at("weights follow the host", _never)),
    Fault("master-weight-left-behind", "update", POINT, "optimizers update the float16 weight and not its master",
          _at("masters are updated", _never)),
    Fault("unscaled-gradient-rounded", "numerics", POINT, "gradients are rounded when the loss scale is taken out",
          _at("divide without rounding", _never)),
    Fault("call-outputs-reversed", "streams", POINT, "a call of a model returns its outputs in the wrong order",
          _at("outputs of a call", lambda value: value[::-1])),
    Fault("model-cut-into-programs", "plan", POINT, "a model becomes several programs, each compiled by itself",
          _at("one program", _never)),
    Fault("host-differentiates-again", "update", POINT, "what a call returned can be differentiated on the host",
          _at("no gradient on the host", _never)),
    Fault("predictor-ignores-batches", "streams", POINT, "a predictor has one batch per step",
          _at("predictor's batches per step", lambda value: 1)),
    Fault("predictor-ignores-replicas", "streams", POINT, "a predictor has one replica",
          _at("predictor's replicas", lambda value: 1)),
    Fault("predictor-ignores-float16", "numerics", POINT, "a predictor computes in float32",
          _at("predictor in float16", _never)),
    Fault("predictor-shares-inputs", "streams", POINT, "a handle keeps the array itself that is copied into it",
          _at("copy inputs", lambda value, given: given)),
    Fault("predictor-always-on-ipu", "plan", POINT, "predictors run on the IPU without enable_ipu",
          _at("predictor on the IPU", _always)),
    Fault("timeout-ignored", "streams", POINT, "the model runtime refuses small batches in spite of a timeout",
          _at("timeout", lambda value: 0.0)),
    Fault("timeout-always", "streams", POINT, "the model runtime completes small batches without a timeout",
          _at("timeout", lambda value: 1.0)),
    Fault("request-not-cut", "streams", POINT, "the answer holds what completed the batch",
          _at("request fills the batch", _always)),
    Fault("requests-may-disagree", "streams", POINT, "inputs of one request may have unequal numbers of samples",
          _at("feeds agree", _never)),
    Fault("training-is-served", "plan", POINT, "the model runtime takes programs that train",
          _at("serve inference alone", _never)),
    Fault("unknown-custom-op-accepted", "ir", POINT, "a custom op that nobody registered is accepted",
          _at("custom op is registered", _always)),
    Fault("sdk-sources-accepted", "ir", POINT, "C++ sources for the IPU go to the host's compiler",
          _at("source is for the IPU", _never)),
):  # fmt: skip
    faults.register(_fault)
