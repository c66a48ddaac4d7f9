"""Ways for PopTorch's own operations to be wrong."""

from __future__ import annotations

import functools

from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.faults.catalogue import Fault, always, never, rule

POINT = "poptorch.operation"

catalogue.register_point(POINT, "operation: which detail of which operation this is; value: what it is there")

_at = functools.partial(rule, key="operation")

for _fault in (
    Fault("loss-mean-is-sum", "reduce", POINT, "the mean of a loss is its sum",
          _at("identity_loss reduction", lambda reduction: "sum" if reduction == "mean" else reduction)),
    Fault("print-is-silent", "streams", POINT, "a printed tensor does not appear",
          _at("print", never)),
    Fault("gradient-is-not-printed", "streams", POINT, "only the tensor is printed, never its gradient",
          _at("print gradient", never)),
    Fault("loop-runs-once-more", "plan", POINT, "a loop has one iteration too many",
          _at("for_loop count", lambda count: count + 1)),
    Fault("condition-is-inverted", "plan", POINT, "the device takes the other branch",
          _at("cond taken", lambda taken: ~taken)),
    Fault("both-branches-have-effects", "plan", POINT, "prints and host calls of the other branch happen too",
          _at("cond effects", lambda taken: None)),
    Fault("slice-starts-one-late", "streams", POINT, "a dynamic slice begins one position too far",
          _at("dynamic_slice start", lambda start: start + 1)),
    Fault("slice-does-not-wrap", "streams", POINT, "a dynamic slice beyond the end repeats the last position",
          _at("dynamic_slice wraps", never)),
    Fault("update-starts-one-late", "streams", POINT, "a dynamic update begins one position too far",
          _at("dynamic_update start", lambda start: start + 1)),
    Fault("last-piece-of-product-lost", "numerics", POINT, "the last part of a sum in pieces is left out",
          _at("serializedMatMul parts", lambda parts: parts[:-1] if len(parts) > 1 else parts)),
    Fault("pieces-lose-precision", "numerics", POINT, "parts of a float16 sum are added in float16",
          _at("serializedMatMul widen", never)),
    Fault("host-is-called-at-compile-time-only", "streams", POINT, "a host call gives zeros at run time",
          _at("host called", never)),
    Fault("ctc-repeats-are-kept", "numerics", POINT, "repeated labels do not merge",
          _at("ctc merges", never)),
    Fault("ctc-lengths-ignored", "streams", POINT, "all steps are decoded whatever the length",
          _at("ctc length", lambda length: None)),
    Fault("nearest-point-sampled", "numerics", POINT, "farthest point sampling takes the nearest points",
          _at("fps distance", lambda distance: -distance)),
    Fault("nearest-across-batches", "streams", POINT, "the nearest point may be in another batch",
          _at("nearest batches", lambda apart: apart & False)),
    Fault("group-settings-unchecked", "plan", POINT, "settings of another number than the convolutions are accepted",
          _at("multiconv fits", always(True))),
    Fault("name-scope-lost", "ir", POINT, "operations do not carry their name scope",
          _at("poptorch_scope", lambda scopes: ())),
    Fault("attributes-lost", "ir", POINT, "operations do not carry their attributes",
          _at("poptorch_attributes", lambda attributes: {})),
):  # fmt: skip
    catalogue.register(_fault, __name__)
