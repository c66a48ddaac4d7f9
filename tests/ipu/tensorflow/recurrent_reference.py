"""What recurrent layers are: the oracle's ops unrolled over time, with the gradients of everything."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from ipu_conformance import check

from .operations import values
from .rounded_tape import Specification, Tape, Value, joined, leaves, with_tolerances

STEPS, BATCH, SIZE, UNITS = 3, 2, 4, 5
LENGTHS = np.array([3, 2])
"""The second sequence ends before the last step."""


def weights(gates: int, dtype: str, biases: int = 1) -> Tuple[np.ndarray, np.ndarray]:
    """A kernel for inputs and state together, and as many rows of biases for every gate."""
    kernel = values((SIZE + UNITS, gates * UNITS), 51, -1.0, 1.0, dtype)
    return kernel, values((gates, UNITS) if biases == 1 else (gates, biases, UNITS), 52, -1.0, 1.0, dtype)


def given(dtype: str, states: int) -> Tuple[np.ndarray, List[np.ndarray], np.ndarray, List[np.ndarray]]:
    """The inputs, the states that they begin with, and cotangents of the outputs and the last states."""
    x, outputs = values((STEPS, BATCH, SIZE), 53, dtype=dtype), values((STEPS, BATCH, UNITS), 54, dtype=dtype)
    begin = [values((BATCH, UNITS), 55 + place, -1.0, 1.0, dtype) for place in range(states)]
    return x, begin, outputs, [values((BATCH, UNITS), 57 + place, dtype=dtype) for place in range(states)]


class _Cut:
    """Inputs, kernel and biases cut into the pieces that the gates of every step take."""

    def __init__(self, x: np.ndarray, kernel: np.ndarray, biases: np.ndarray) -> None:
        gates = len(biases)
        self.x = [Value(step) for step in x]
        self.of_inputs, self.of_state = leaves(kernel[:SIZE], gates, 1), leaves(kernel[SIZE:], gates, 1)
        self.biases = [leaves(gate.reshape(-1, UNITS), gate.size // UNITS, 0) for gate in biases]

    def gradients(self, found: Dict[int, np.ndarray], shape: Tuple[int, ...]) -> Dict[str, np.ndarray]:
        """The gradients of all pieces, put together again."""
        kernel = np.concatenate([joined(found, self.of_inputs, 1), joined(found, self.of_state, 1)])
        flat = [value for gate in self.biases for value in gate]
        return {
            "the gradient of the inputs": np.stack([found[id(step)] for step in self.x]),
            "the gradient of the kernel": kernel,
            "the gradient of the biases": joined(found, flat, 0, shape),
        }


def _kept(tape: Tape, new: Value, old: Value, running: Optional[np.ndarray]) -> Value:
    """The new state of the sequences that are running, and the old one of the others."""
    if running is None:
        return new
    on, off = Value(running.astype(float)), Value(1.0 - running)
    return tape("add", tape("mul", new, on), tape("mul", old, off))


def _running(step: int, lengths: Optional[np.ndarray]) -> Optional[np.ndarray]:
    return None if lengths is None else (step < lengths)[:, None]


def lstm(dtype: str, lengths: Optional[np.ndarray], tape: Tape) -> Dict[str, np.ndarray]:
    """Forget, input, cell and output gates; the cell state is kept by one and added to by the next two."""
    kernel, biases = weights(4, dtype)
    x, begin, outputs, last = given(dtype, 2)
    cut, (cell, state) = _Cut(x, kernel, biases), [Value(array) for array in begin]
    start, made = (cell, state), []
    for step, here in enumerate(cut.x):
        sums = [
            tape("add", tape("add", tape("matmul", here, cut.of_inputs[g]), tape("matmul", state, cut.of_state[g])),
                 cut.biases[g][0])
            for g in range(4)
        ]  # fmt: skip
        forget, take, give = (tape("sigmoid", sums[g]) for g in (0, 1, 3))
        new = tape("add", tape("mul", forget, cell), tape("mul", take, tape("tanh", sums[2])))
        running = _running(step, lengths)
        output = tape("mul", give, tape("tanh", new))
        made.append(output if running is None else tape("mul", output, Value(running.astype(float))))
        cell, state = _kept(tape, new, cell, running), _kept(tape, output, state, running)
    found = tape.gradients([*made, cell, state], [*outputs, *last])
    return {
        "the outputs": np.stack([value.array for value in made]),
        "the cell state": cell.array,
        "the state": state.array,
        **cut.gradients(found, biases.shape),
        "the gradient of the cell state": found[id(start[0])],
        "the gradient of the state": found[id(start[1])],
    }


def gru(
    dtype: str, lengths: Optional[np.ndarray], after: bool, attention: Optional[np.ndarray], tape: Tape
) -> Dict[str, np.ndarray]:
    """Reset, update and candidate; the update gate says how much of the old state is kept."""
    kernel, biases = weights(3, dtype, 2 if after else 1)
    x, begin, outputs, last = given(dtype, 1)
    cut, state, one = _Cut(x, kernel, biases), Value(begin[0]), Value(np.ones(()))
    start, made, scores = state, [], []
    for step, here in enumerate(cut.x):
        inputs = [tape("add", tape("matmul", here, cut.of_inputs[g]), cut.biases[g][0]) for g in range(3)]
        shares = [tape("matmul", state, cut.of_state[g]) for g in range(3 if after else 2)]
        if after:
            shares = [tape("add", share, cut.biases[g][1]) for g, share in enumerate(shares)]
        reset, update = (tape("sigmoid", tape("add", inputs[g], shares[g])) for g in (0, 1))
        share = tape("mul", reset, shares[2]) if after else tape("matmul", tape("mul", reset, state), cut.of_state[2])
        candidate = tape("tanh", tape("add", inputs[2], share))
        if attention is not None:
            scores.append(Value(attention[:, step, None]))
            update = tape("mul", tape("sub", one, scores[-1]), update)
        new = tape("add", tape("mul", update, state), tape("mul", tape("sub", one, update), candidate))
        running = _running(step, lengths)
        made.append(new if running is None else tape("mul", new, Value(running.astype(float))))
        state = _kept(tape, new, state, running)
    found = tape.gradients([*made, state], [*outputs, *last])
    record = {
        "the outputs": np.stack([value.array for value in made]),
        "the state": state.array,
        **cut.gradients(found, biases.shape),
        "the gradient of the state": found[id(start)],
    }
    if attention is not None:
        record["the gradient of the attention"] = joined(found, scores, 1)
    return record


def compare(made: Dict[str, Any], specification: Specification, dtype: str) -> None:
    """Everything that a specification names is made, and within its tolerance."""
    __tracebackhide__ = True
    expected = with_tolerances(specification, dtype)

    assert set(made) == set(expected)
    for name, (value, tolerance) in expected.items():
        check.close(actual=made[name], expected=value, tolerance=tolerance, what=name, dtype=dtype)
