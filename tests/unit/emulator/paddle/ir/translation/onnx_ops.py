"""Ops for ONNX's reference evaluator: PopART's, and those of ONNX that it does not compute as specified.

Its recurrent ops support neither lengths of sequences nor all outputs, and one of them no batches.
"""

from __future__ import annotations

from typing import Any, Callable, List, Tuple

import numpy as np
from onnx.reference.op_run import OpRun
from scipy.special import erf

POPART = "ai.graphcore"

Step = Callable[..., Tuple[np.ndarray, ...]]


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _unrolled(step: Step, x: Any, lengths: Any, states: List[Any]) -> Tuple[Any, ...]:
    """What a cell makes of a sequence: zeros, and the states as they were, after a sequence has ended."""
    outputs = []
    held = tuple(state[0].astype(np.float64) for state in states)
    for number, part in enumerate(x.astype(np.float64)):
        running = np.ones((x.shape[1], 1), bool) if lengths is None else (number < lengths)[:, None]
        following = step(part, *held)
        held = tuple(np.where(running, new, old) for new, old in zip(following, held))
        outputs.append(np.where(running, held[0], 0.0))
    return (np.stack(outputs)[:, None].astype(x.dtype), *(state[None].astype(x.dtype) for state in held))


class LSTM(OpRun):
    """Gates in the order input, output, forget, cell."""

    op_domain = ""

    def _run(self, x: Any, w: Any, r: Any, b: Any, lengths: Any, h: Any, c: Any, **attributes: Any) -> Tuple[Any, ...]:
        bias, recurrent = np.split(b[0], 2)

        def step(part: Any, hidden: Any, cell: Any) -> Tuple[Any, ...]:
            gates = part @ w[0].T + hidden @ r[0].T + bias + recurrent
            inward, outward, forget, new = np.split(gates, 4, axis=-1)
            kept = _sigmoid(forget) * cell + _sigmoid(inward) * np.tanh(new)
            return _sigmoid(outward) * np.tanh(kept), kept

        return _unrolled(step, x, lengths, [h, c])


class GRU(OpRun):
    """Gates in the order update, reset, hidden; the reset comes after the product."""

    op_domain = ""

    def _run(
        self, x: Any, w: Any, r: Any, b: Any, lengths: Any, h: Any, linear_before_reset: Any = None, **attributes: Any
    ) -> Tuple[Any, ...]:
        assert linear_before_reset == 1
        bias, recurrent = np.split(b[0], 2)

        def step(part: Any, hidden: Any) -> Tuple[Any, ...]:
            update, reset, new = np.split(part @ w[0].T + bias, 3, axis=-1)
            more = np.split(hidden @ r[0].T + recurrent, 3, axis=-1)
            kept = _sigmoid(update + more[0])
            return ((1 - kept) * np.tanh(new + _sigmoid(reset + more[1]) * more[2]) + kept * hidden,)

        return _unrolled(step, x, lengths, [h])


class RNN(OpRun):
    """One gate."""

    op_domain = ""

    def _run(
        self, x: Any, w: Any, r: Any, b: Any, lengths: Any, h: Any, activations: Any = None, **attributes: Any
    ) -> Tuple[Any, ...]:
        bias, recurrent = np.split(b[0], 2)
        function: Any = {"Tanh": np.tanh, "Relu": lambda value: np.maximum(value, 0)}[activations[0]]
        return _unrolled(
            lambda part, hidden: (function(part @ w[0].T + hidden @ r[0].T + bias + recurrent),), x, lengths, [h]
        )


class Gelu(OpRun):
    """The exact one, by the error function."""

    op_domain = POPART

    def _run(self, x: Any, approximate: Any = None) -> Tuple[Any]:
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
    how: Any = {"Mean": np.mean, "Sum": np.sum, "NoReduction": lambda array: array}[reduction]
    return np.asarray(how(values), values.dtype)


def _bits(name: str, function: Any) -> Any:
    return type(name, (OpRun,), {"op_domain": POPART, "_run": lambda self, *inputs: (function(*inputs),)})


OPS = [
    *(BatchNormalization, Gelu, Celu, GroupNormalization, Nll, IdentityLoss, LSTM, GRU, RNN),
    _bits("BitwiseAnd", np.bitwise_and),
    _bits("BitwiseOr", np.bitwise_or),
    _bits("BitwiseXor", np.bitwise_xor),
    _bits("BitwiseNot", np.bitwise_not),
]
