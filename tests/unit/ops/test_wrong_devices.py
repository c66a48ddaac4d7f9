"""The op cases pass on a device that computes what the oracle says, and fail with a sentence on one that does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.ops import TABLE
from ipu_conformance.ops.sampling import is_pointwise
from ipu_conformance.ops.variants import edges
from ipu_conformance.oracle.ops import OPS
from ipu_conformance.trials import judge
from ipu_conformance.trials.bench import Bench
from tests.unit.ops.device import NumpyDevice, bench

RIGHT = "gelu add maximum sum max softmax conv max_pool sort gather lstm layer_norm pad"


def _judge(name, edge, dtype="float32", **wrong):
    table = bench(name, [edge], dtype, **wrong)
    row = next(row for row, _ in table._rows)
    for trial in table.trials(row, edge):
        judge.forward(row, trial, dtype, "poptorch")
        if trial.cotangents:
            judge.gradient(row, trial, dtype, "poptorch")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", RIGHT.split())
def test_a_right_device_passes(name, dtype):
    """Every edge of an op passes on the oracle itself, rounded."""
    for edge in ("drawn", *edges(TABLE[name], dtype)):
        _judge(name, edge, dtype)


def _naive_softmax(x, axis):
    e = np.exp(x.astype(np.float32))
    return e / e.sum(axis=axis, keepdims=True)


def _without_last(x, **attributes):
    flat = x.copy()
    flat.reshape(-1)[-1] = 0.0
    return OPS["sum"].forward(flat, **attributes)


def _half_partials(x, axis, keepdims):
    total = np.zeros(x.shape[:1], np.float16)
    for column in x.T.astype(np.float16):
        total = (total + column).astype(np.float16)
    return total.astype(np.float64)


def _scaled(name, place):
    def gradient(*arguments, **attributes):
        pulled = list(OPS[name].vjp(*arguments, **attributes))
        pulled[place] = pulled[place] * 1.001
        return pulled

    return gradient


def _at(name, region, value):
    def forward(x, *others, **attributes):
        return np.where(region(x), value(x), OPS[name].forward(x, *others, **attributes))

    return forward


def _turned(*inputs, **attributes):
    padding = attributes["padding"]
    turned = padding if padding == "SAME" else tuple((high, low) for low, high in padding)
    return OPS["conv"].forward(*inputs, **{**attributes, "padding": turned})


WRONG = {
    "softmax that overflows": ("softmax", "large", "float32", {"forward": _naive_softmax}),
    "sum without its last element": ("sum", "drawn", "float32", {"forward": _without_last}),
    "float16 partials of a long sum": ("sum", "long", "float16", {"forward": _half_partials}),
    "gradient of the second operand": ("mul", "drawn", "float32", {"gradient": _scaled("mul", 1)}),
    "gradient of a kernel": ("conv", "drawn", "float32", {"gradient": _scaled("conv", 1)}),
    "asymmetric padding": ("conv", "drawn", "float32", {"forward": _turned}),
    "zeros": ("exp", "zeros", "float32", {"forward": _at("exp", lambda x: x == 0, lambda x: 0.0)}),
    "sign of an infinity": ("neg", "infinities", "float32", {"forward": _at("neg", np.isinf, lambda x: x)}),
    "NaN": ("tanh", "nan", "float32", {"forward": _at("tanh", np.isnan, lambda x: 0.0)}),
    "large numbers": ("tanh", "large", "float32", {"forward": _at("tanh", lambda x: np.abs(x) > 50, lambda x: np.nan)}),
    "denormals": ("sqrt", "denormals", "float32", {"forward": _at("sqrt", lambda x: np.abs(x) < 1e-38, lambda x: 1.0)}),
    "ties": ("relu6", "ties", "float32", {"forward": _at("relu6", lambda x: x == 6, lambda x: 0.0)}),
    "moved NaN": ("flip", "bits", "float32", {"forward": lambda x, axis: np.flip(np.nan_to_num(x), axis)}),
    "moved sign of zero": ("flip", "bits", "float32", {"forward": lambda x, axis: np.flip(x + 0.0, axis)}),
    "keepdims": ("mean", "drawn", "float32", {"forward": lambda x, axis, keepdims: np.mean(x, axis, keepdims=False)}),
}


@pytest.mark.parametrize(("name", "edge", "dtype", "wrong"), WRONG.values(), ids=WRONG)
def test_a_wrong_device_fails(name, edge, dtype, wrong):
    """A device that is wrong in one region fails with a sentence that names the op and the place."""
    with pytest.raises(check.CheckFailure, match=rf"of {name}\("):
        _judge(name, edge, dtype, **wrong)


def test_calls_share_programs():
    """The special numbers of a pointwise op are one call, and all edges of an op are one program."""
    row = TABLE["tanh"]
    assert is_pointwise(row.op)
    device: Any = NumpyDevice(row)
    table = Bench("poptorch", device, "float32", [(device.row, edge) for edge in ("drawn", *edges(row, "float32"))])
    for edge in ("drawn", *edges(row, "float32")):
        table.trials(device.row, edge)
    drawn = table.trials(device.row, "drawn")

    assert device.programs == [len(drawn) + len(["size-one", "empty", "special numbers"])]


def test_a_call_that_fails_costs_itself_alone():
    """A program that cannot run is cut in halves until the call at fault stands alone."""
    row = TABLE["sum"]
    device: Any = NumpyDevice(row)
    run = device.run_ops

    def refusing(calls, dtype):
        if any(call.inputs[0][0].size == 1 for call in calls):
            raise RuntimeError("no tensors of one element")
        return run(calls, dtype)

    device.run_ops = refusing
    table = Bench("poptorch", device, "float32", [(device.row, "drawn"), (device.row, "size-one")])

    assert isinstance(table.trials(device.row, "size-one")[0].result, RuntimeError)
    assert not any(isinstance(trial.result, Exception) for trial in table.trials(device.row, "drawn"))
