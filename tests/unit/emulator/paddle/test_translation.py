"""The table from Paddle's ops to ONNX and PopART computes what Paddle computes."""

from __future__ import annotations

from typing import Any, List, Set, Tuple

import numpy as np
import onnx
import paddle
import pytest
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from ipu_conformance import ir
from ipu_conformance.ir.readers.paddle import ops
from ipu_conformance.ir.readers.paddle import program as paddle_program

from .recurrent_ops import GRU, LSTM, RNN
from .static_mode import run, static
from .translation_use import Use
from .translations import NOT_COMPARED, every

EPSILON = float(np.finfo(np.float32).eps)
POPART = "ai.graphcore"


class Gelu(OpRun):
    """The exact one, by the error function."""

    op_domain = POPART

    def _run(self, x: Any, approximate: Any = None) -> Tuple[Any]:
        from scipy.special import erf

        return ((0.5 * x * (1 + erf(x / np.sqrt(2)))).astype(x.dtype),)


class Celu(OpRun):
    """Smooth below zero."""

    op_domain = POPART

    def _run(self, x: Any, alpha: Any = None) -> Tuple[Any]:
        return (np.where(x > 0, x, alpha * np.expm1(x / alpha)).astype(x.dtype),)


class GroupNormalization(OpRun):
    """Each group of channels of a sample has mean 0 and variance 1 before scale and bias."""

    op_domain = POPART

    def _run(
        self, x: Any, scale: Any, bias: Any, epsilon: Any = None, num_groups: Any = None, **unused: Any
    ) -> Tuple[Any]:
        flat = x.reshape(x.shape[0], num_groups, -1).astype(np.float64)
        normal = (flat - flat.mean(2, keepdims=True)) / np.sqrt(flat.var(2, keepdims=True) + epsilon)
        ones = (1, -1) + (1,) * (x.ndim - 2)
        return ((normal.reshape(x.shape) * scale.reshape(ones) + bias.reshape(ones)).astype(x.dtype),)


class BatchNormalization(OpRun):
    """With the statistics that are given; the evaluator's own takes those of the batch."""

    op_domain = ""

    def _run(
        self, x: Any, scale: Any, bias: Any, mean: Any, variance: Any, epsilon: Any = None, **unused: Any
    ) -> Tuple[Any]:
        scale, bias, mean, variance = (value.reshape(1, -1, 1, 1) for value in (scale, bias, mean, variance))
        return (((x - mean) / np.sqrt(variance + epsilon) * scale + bias).astype(x.dtype),)


class Nll(OpRun):
    """The negative logarithm of the label's probability."""

    op_domain = POPART

    def _run(
        self, x: Any, label: Any, inputIsLogProbability: Any = None, reduction: Any = None, ignoreIndex: Any = None
    ) -> Tuple[Any]:
        chosen = np.take_along_axis(x, label[..., None].astype(np.int64), -1)[..., 0]
        loss = -(chosen if inputIsLogProbability else np.log(chosen))
        return (_reduced(loss, reduction),)


class IdentityLoss(OpRun):
    """A value that is the loss, reduced."""

    op_domain = POPART

    def _run(self, x: Any, reduction: Any = None) -> Tuple[Any]:
        return (_reduced(x, reduction),)


def _reduced(values: Any, reduction: str) -> Any:
    how = {"Mean": np.mean, "Sum": np.sum, "NoReduction": lambda array: array}[reduction]
    return np.asarray(how(values), values.dtype)


def _bits(name: str, function: Any) -> Any:
    return type(name, (OpRun,), {"op_domain": POPART, "_run": lambda self, *inputs: (function(*inputs),)})


OPS = [
    BatchNormalization,
    Gelu,
    Celu,
    GroupNormalization,
    Nll,
    IdentityLoss,
    LSTM,
    GRU,
    RNN,
    _bits("BitwiseAnd", np.bitwise_and),
    _bits("BitwiseOr", np.bitwise_or),
    _bits("BitwiseXor", np.bitwise_xor),
    _bits("BitwiseNot", np.bitwise_not),
]


def _built(translation: Use) -> Tuple[List[Any], Any]:
    """The inputs of a use of an op in the default program, and what it makes of them."""
    variables = [
        paddle.static.data(f"x{place}", array.shape, str(array.dtype)) for place, array in enumerate(translation.arrays)
    ]
    return variables, translation.build(*variables)


@pytest.mark.parametrize("translation", every(), ids=str)
def test_an_op_computes_what_paddle_computes(translation: Use) -> None:
    """The graph of an op, valid ONNX, gives shape, kind and values of Paddle's own run."""
    with static() as (program, _, scope):
        variables, made = _built(translation)
        feed = {variable.name: array for variable, array in zip(variables, translation.arrays)}
        graph = paddle_program.read_program(program, [made.name])
        expected = run(program, feed, [made.name], scope)[0]
    model = onnx.load_from_string(ir.dumps(graph, "onnx"))

    found = ReferenceEvaluator(model, new_ops=OPS).run(None, {name: feed[name] for name in graph.inputs})[0]

    assert not [op.type for op in graph.ops if "::" in op.type]
    assert np.shape(found) == expected.shape
    assert np.asarray(found).dtype.kind == expected.dtype.kind
    np.testing.assert_allclose(found, expected, rtol=0, atol=_allowed(graph, expected, translation.arrays))


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
    for translation in every():
        with static() as (program, _, _):
            _built(translation)
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
