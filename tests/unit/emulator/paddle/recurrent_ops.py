"""ONNX's recurrent ops as the specification has them, forwards, with a length for every sequence.

Those of the reference evaluator know neither lengths nor all outputs, and one of them no batches.
"""

from __future__ import annotations

from typing import Any, Callable, List, Tuple

import numpy as np
from onnx.reference.op_run import OpRun

Step = Callable[..., Tuple[np.ndarray, ...]]


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _unrolled(step: Step, x: Any, lengths: Any, states: List[Any]) -> Tuple[Any, ...]:
    """What a cell makes of a sequence: zeros, and the states as they were, after a sequence has ended."""
    made = []
    held = tuple(state[0].astype(np.float64) for state in states)
    for number, part in enumerate(x.astype(np.float64)):
        running = np.ones((x.shape[1], 1), bool) if lengths is None else (number < lengths)[:, None]
        following = step(part, *held)
        held = tuple(np.where(running, new, old) for new, old in zip(following, held))
        made.append(np.where(running, held[0], 0.0))
    return (np.stack(made)[:, None].astype(x.dtype), *(state[None].astype(x.dtype) for state in held))


class LSTM(OpRun):
    """Gates in the order input, output, forget, cell."""

    op_domain = ""

    def _run(self, x: Any, w: Any, r: Any, b: Any, lengths: Any, h: Any, c: Any, **attributes: Any) -> Tuple[Any, ...]:
        own, recurrent = np.split(b[0], 2)

        def step(part: Any, hidden: Any, cell: Any) -> Tuple[Any, ...]:
            gates = part @ w[0].T + hidden @ r[0].T + own + recurrent
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
        own, recurrent = np.split(b[0], 2)

        def step(part: Any, hidden: Any) -> Tuple[Any, ...]:
            update, reset, new = np.split(part @ w[0].T + own, 3, axis=-1)
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
        own, recurrent = np.split(b[0], 2)
        function = {"Tanh": np.tanh, "Relu": lambda value: np.maximum(value, 0)}[activations[0]]
        return _unrolled(
            lambda part, hidden: (function(part @ w[0].T + hidden @ r[0].T + own + recurrent),), x, lengths, [h]
        )
