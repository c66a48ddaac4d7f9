"""The calls of the op table while a framework records a program, which is how a device is asked."""

from __future__ import annotations

import os
import warnings
from typing import Any, List, Sequence

import numpy as np
import pytest

from ipu_conformance.ops import TABLE, Inexpressible, Row
from ipu_conformance.oracle.op import as_tuple
from ipu_conformance.oracle.sample import Sample, SeededChooser
from ipu_conformance.oracle.tolerance.ops import for_outputs
from tests.unit.oracle.installed import framework_using, installed
from tests.unit.oracle.witnesses import WITNESSES

TRIES = 20
"""Samples that are drawn until the framework can express one."""


def _listed(outputs: Any) -> List[Any]:
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]


def _torch(torch: Any, row: Row, arrays: Sequence[np.ndarray], sample: Sample) -> List[np.ndarray]:
    class Net(torch.nn.Module):
        def forward(self, *inputs):
            return tuple(_listed(row.call("torch")(torch, *inputs, **sample.attributes)))

    inputs = tuple(torch.from_numpy(array) for array in arrays)
    exported = torch.export.export(Net(), inputs, strict=False)
    return [output.numpy() for output in exported.module()(*inputs)]


def _tensorflow(tf: Any, row: Row, arrays: Sequence[np.ndarray], sample: Sample) -> List[np.ndarray]:
    # A call has no control flow for autograph to record, and looking for it takes longer than recording.
    graph = tf.function(lambda *inputs: row.call("tensorflow")(tf, *inputs, **sample.attributes), autograph=False)
    return [output.numpy() for output in _listed(graph(*map(tf.constant, arrays)))]


def _paddle(paddle: Any, row: Row, arrays: Sequence[np.ndarray], sample: Sample) -> List[np.ndarray]:
    program, startup = paddle.static.Program(), paddle.static.Program()
    paddle.enable_static()
    try:
        with paddle.static.program_guard(program, startup), paddle.static.scope_guard(paddle.static.Scope()):
            feed = {f"x{place}": array for place, array in enumerate(arrays)}
            inputs = [paddle.static.data(name, list(array.shape), str(array.dtype)) for name, array in feed.items()]
            outputs = _listed(row.call("paddle")(paddle, *inputs, **sample.attributes))
            executor = paddle.static.Executor(paddle.CPUPlace())
            executor.run(startup)
            return executor.run(program, feed=feed, fetch_list=outputs)
    finally:
        paddle.disable_static()


RECORDED = {"torch": _torch, "tensorflow": _tensorflow, "paddle": _paddle}


def _expressible(row: Row, library: str) -> Any:
    """The outputs of the first sample that ``library`` can express and computes rightly, with the sample."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    module = installed(library)
    when, _ = WITNESSES[library].exceptions.get((row.name, "outputs", "float32"), (None, ""))
    for seed in range(TRIES):
        sample = row.op.draw(SeededChooser(seed)).rounded_to("float32")
        if when is not None and when(*sample.inputs, **sample.attributes):
            continue
        arrays = [np.array(x, dtype=np.float32 if x.dtype.kind == "f" else x.dtype) for x in sample.inputs]
        try:
            return RECORDED[library](module, row, arrays, sample), sample
        except Inexpressible:
            continue
    raise AssertionError(f"{library} can express none of {TRIES} samples of {row.name}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("library", "name"),
    [
        pytest.param(library, row.name, id=f"{framework_using(library)}-{row.name}")
        for library in RECORDED
        for row in TABLE.values()
        if not row.missing(library)
    ],
)
def test_a_recorded_program_computes_the_op(library, name):
    """A program that a framework records makes what is specified, in float32."""
    row = TABLE[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outputs, sample = _expressible(row, library)
    expected = as_tuple(row.op.forward(*sample.inputs, **sample.attributes))

    assert [np.shape(output) for output in outputs] == [np.shape(value) for value in expected]
    assert name == "cast" or "float64" not in [str(output.dtype) for output in outputs]
    for output, value, limit in zip(outputs, expected, for_outputs(row.op, sample, dtype="float32")):
        assert limit.ratio(output, value) < 1.0
