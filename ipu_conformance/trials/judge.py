"""Compares what a device made of a call with what the oracle expects."""

from __future__ import annotations

from typing import Any, Mapping, Optional

import numpy as np

from ipu_conformance import check, notes
from ipu_conformance.frameworks import OpResult
from ipu_conformance.ops.demand import Demand, Made
from ipu_conformance.ops.dtypes import FORMATS
from ipu_conformance.ops.expectation import SELECTING, WITHOUT_GRADIENT, Expected, gradients, outputs
from ipu_conformance.ops.latitude import is_settled
from ipu_conformance.ops.open import why_open
from ipu_conformance.ops.row import Row
from ipu_conformance.oracle.op import as_tuple
from ipu_conformance.oracle.tolerance.ops import Tolerance
from ipu_conformance.trials.bench import Trial
from ipu_conformance.triangulation import Point, point

NARROW = {"int64": "int32", "float64": "float32"}


def forward(row: Row, trial: Trial, dtype: str, framework: str) -> None:
    """Every output of every micro-batch is the oracle's."""
    __tracebackhide__ = True
    made = _made(row, trial, dtype, framework)
    result = _result(trial, made)
    for micro_batch, sample in enumerate(trial.call.samples):
        expected = outputs(row, sample, dtype, trial.call.edge, framework)
        actual = result.outputs[micro_batch]
        check.equal(actual=len(actual), expected=len(expected), what=f"the number of outputs of {row.name}")
        for place, (value, each) in enumerate(zip(actual, expected)):
            what = f"output {place} of {row.name}({trial.call.describe()}) in micro-batch {micro_batch}"
            kind = _device_type(each.low, dtype, trial.call.attributes, framework)
            if why_open(row.name, framework, "forward", trial.call.edge):
                demand = Demand("shape", {"expected": each.low.shape, "what": what})
            elif trial.call.edge == "bits" and each.low.dtype.kind == "f":
                moved = np.asarray(as_tuple(row.op.forward(*sample.inputs, **sample.attributes))[place])
                moved = moved.astype(kind or np.asarray(value).dtype)
                because = "data movement changes no bit"
                demand = Demand("identical", {"expected": moved, "what": what, "because": because})
            else:
                demand = _demand(each, what, kind)
            demand.meet(value, made, f"result.outputs[{micro_batch}][{place}]")


def gradient(row: Row, trial: Trial, dtype: str, framework: str) -> None:
    """The gradient of every input, summed over the micro-batches, is the oracle's."""
    __tracebackhide__ = True
    made = _made(row, trial, dtype, framework)
    result = _result(trial, made)
    edge = trial.call.edge
    if edge in WITHOUT_GRADIENT:
        return
    expected = gradients(row, trial.call.samples, trial.cotangents, dtype, edge, framework)
    for place in trial.asked.wanted:
        each = expected[place]
        assert each is not None
        what = f"the gradient of input {place} of {row.name}({trial.call.describe()})"
        actual, part = result.gradients[place], f"result.gradients[{place}]"
        if why_open(row.name, framework, "gradient", edge):
            demand = Demand("shape", {"expected": each.low.shape, "what": what})
        elif row.name in SELECTING and edge in ("ties", "zeros") and not is_settled(row.name, framework, edge):
            actual, part = np.sum(actual, dtype=np.float64), f"np.sum({part}, dtype=np.float64)"
            demand = _demand(_total(each), f"the sum of {what}", None)
        else:
            demand = _demand(each, what, dtype)
        demand.meet(actual, made, part)


def shared_point(row: Row, trial: Trial, dtype: str, framework: str) -> Optional[Point]:
    """The first output of a call, to be compared between frameworks; None where there is none or it is open."""
    edge = trial.call.edge
    if not isinstance(trial.result, OpResult) or why_open(row.name, framework, "forward", edge):
        return None
    expected = outputs(row, trial.call.samples[0], dtype, edge, framework)[0]
    if not expected.single:
        return None
    value = trial.result.outputs[0][0]
    if np.shape(value) != expected.low.shape:
        return None
    key = f"{row.name} {dtype} {edge}"
    return point(key, framework, trial.call.describe(), value, expected.tolerance.allowed)


def _made(row: Row, trial: Trial, dtype: str, framework: str) -> Made:
    """The call of a trial alone: one that is part of a larger call is made of that part."""
    inputs = tuple(sample.inputs for sample in trial.call.samples)
    factors = tuple(as_tuple(each) for each in trial.cotangents)
    kind = dtype if dtype in FORMATS else "float32"
    return Made(row, framework, kind, inputs, trial.call.attributes, factors, trial.asked.wanted)


def _result(trial: Trial, made: Made) -> OpResult:
    if isinstance(trial.result, Exception):
        if notes.wanted():
            made.tell("result", "# The device refused the call, or failed in it.")
        raise trial.result
    assert trial.result is not None
    return trial.result


def _demand(expected: Expected, what: str, dtype: Optional[str]) -> Demand:
    settings = {"tolerance": expected.tolerance, "what": what, "dtype": dtype}
    if expected.single:
        return Demand("close", {"expected": expected.low, **settings})
    return Demand("between", {"low": expected.low, "high": expected.high, "nan": expected.nan, **settings})


def _total(each: Expected) -> Expected:
    allowed = np.sum(each.tolerance.allowed)
    tolerance = Tolerance(allowed, f"{each.tolerance.origin}, summed", each.tolerance.false_alarm_rate)
    return Expected(np.sum(each.low), np.sum(each.high), np.asarray(np.any(each.nan)), tolerance)


def _device_type(expected: np.ndarray, dtype: str, attributes: Mapping[str, Any], framework: str) -> Optional[str]:
    """The type in which the host gets a result, None where it is not specified: how wide TensorFlow's indices are."""
    if "dtype" in attributes:
        kind = str(attributes["dtype"])
    elif expected.dtype == np.float64:
        return dtype if dtype in FORMATS else "float32"
    else:
        kind = str(expected.dtype)
    return None if framework == "tensorflow" and kind == "int64" else NARROW.get(kind, kind)
