"""The table from Paddle's ops to ONNX and PopART computes what Paddle computes."""

from __future__ import annotations

from typing import Any, Dict, List, Set, Tuple

import numpy as np
import onnx
import paddle
import pytest
from onnx.reference import ReferenceEvaluator

from ipu_conformance import ir
from ipu_conformance.ir.readers.paddle import ops
from ipu_conformance.ir.readers.paddle import program as paddle_program

from ...programs import run, static
from . import arithmetic, layout
from .calls import OpCall
from .onnx_ops import OPS

EPSILON = float(np.finfo(np.float32).eps)
CALLS = (*arithmetic.calls(), *layout.calls())

NOT_COMPARED: Dict[str, str] = {
    "uniform_random": "random",
    "gaussian_random": "random",
    "truncated_gaussian_random": "random",
    "bernoulli": "random",
    "dropout": "random where it is on",
    "warpctc": "PopART's own loss",
    "print": "prints",
    **dict.fromkeys(
        ["flatten", "squeeze", "unsqueeze", "one_hot", "pad2d"], "of older programs: this wheel has no kernel"
    ),
    "checkpointoutput": "marks an output",
    "detach": "stops gradients",
    "depthwise_conv2d_transpose": "as conv2d_transpose",
    "conv3d_transpose": "as conv2d_transpose",
    "linear_interp": "as linear_interp_v2",
    "trilinear_interp": "as trilinear_interp_v2",
    "bicubic_interp_v2": "ONNX weighs other neighbours at the border",
}
"""Rows whose values are not compared, each with the reason."""


def _built(call: OpCall) -> Tuple[List[Any], Any]:
    """The inputs of a call in the default program, and its output."""
    variables = [
        paddle.static.data(f"x{place}", array.shape, str(array.dtype)) for place, array in enumerate(call.arrays)
    ]
    return variables, call.build(*variables)


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_an_op_computes_what_paddle_computes(call: OpCall) -> None:
    """The graph of an op, valid ONNX, gives shape, kind and values of Paddle's own run."""
    with static() as (program, _, scope):
        variables, output = _built(call)
        feed = {variable.name: array for variable, array in zip(variables, call.arrays)}
        graph = paddle_program.read_program(program, [output.name])
        expected = run(program, feed, [output.name], scope)[0]
    model = onnx.load_from_string(ir.dumps(graph, "onnx"))

    actual = ReferenceEvaluator(model, new_ops=OPS).run(None, {name: feed[name] for name in graph.inputs})[0]

    assert not [op.type for op in graph.ops if "::" in op.type]
    assert np.shape(actual) == expected.shape
    assert np.asarray(actual).dtype.kind == expected.dtype.kind
    np.testing.assert_allclose(actual, expected, rtol=0, atol=_allowed(graph, expected, call.arrays))


def _allowed(graph: ir.Graph, expected: np.ndarray, arrays: Tuple[np.ndarray, ...]) -> float:
    """Every op rounds each value, and a sum over n values n times, by eps of the largest value that occurs; both
    sides round, and in other orders. What is not a float is exact."""
    if expected.dtype.kind != "f":
        return 0.0
    largest = max([1.0, *(float(np.abs(array).max()) for array in (*arrays, expected) if array.dtype.kind == "f")])
    longest = max(array.size for array in arrays)
    return 2 * EPSILON * (len(graph.ops) + min(longest, 64)) * largest


def test_every_row_is_compared_or_says_why_not() -> None:
    """No row of the table is left out by accident."""
    used: Set[str] = set()
    for call in CALLS:
        with static() as (program, _, _):
            _built(call)
            used.update(op.type for op in program.global_block().ops)

    assert sorted(set(ops.ROWS) - used - set(NOT_COMPARED)) == []


def test_a_dropout_that_is_on_becomes_a_dropout() -> None:
    """Upscaling dropout is one op; the other kind multiplies by what is kept."""
    types: List[List[str]] = []
    for mode in ("upscale_in_train", "downscale_in_infer"):
        with static() as (program, _, _):
            paddle.nn.functional.dropout(paddle.static.data("x", [3, 4], "float32"), 0.4, mode=mode)
            graph = paddle_program.read_program(program)
        types.append([op.type for op in graph.ops if op.type != "Constant"])
        assert graph.ops[0].attributes["ratio"] == pytest.approx(0.4, abs=EPSILON)
    assert types == [["Dropout"], ["Dropout", "Mul"]]
