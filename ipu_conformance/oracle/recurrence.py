"""Recurrent layers as ops unrolled over time, with all gradients: sequence lengths, both resets of a GRU, attention.

The activations are ops by their names: one of what is new and of an LSTM's cell state, one of the gates.

Weights are laid out as TensorFlow has them: one kernel [inputs + units, gates * units] for inputs and state together,
and biases [gates, units], or [gates, 2, units] where the products have one each.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional, Sequence

import numpy as np

from ipu_conformance.oracle.op import Array
from ipu_conformance.oracle.tape import Tape, Value, joined, split


class Sequences(NamedTuple):
    """A call of a recurrent layer, and the cotangents that come back to it."""

    inputs: Array
    """[steps, batch, features]."""
    states: Sequence[Array]
    """What the layer begins with, each [batch, units]: cell and hidden state of an LSTM, the state of a GRU."""
    of_outputs: Array
    of_states: Sequence[Array]
    lengths: Optional[Array] = None
    """Beyond its length a sequence gives 0 and keeps its state; None if all are as long as the inputs."""


class _Gates:
    """Inputs, kernel and biases cut into what each gate takes at each step."""

    def __init__(self, inputs: Array, kernel: Array, biases: Array) -> None:
        gates, features, units = len(biases), inputs.shape[-1], biases.shape[-1]
        self._shape = biases.shape
        self.steps = [Value(step) for step in inputs]
        self.of_inputs, self.of_state = split(kernel[:features], gates, 1), split(kernel[features:], gates, 1)
        self.biases = [split(gate.reshape(-1, units), gate.size // units, 0) for gate in biases]

    def gradients(self, gradients: Dict[int, Array]) -> Dict[str, Array]:
        """The gradients of inputs, kernel and biases, put together again."""
        kernel = np.concatenate([joined(gradients, self.of_inputs, 1), joined(gradients, self.of_state, 1)])
        biases = joined(gradients, [value for gate in self.biases for value in gate], 0)
        return {
            "the gradient of the inputs": np.stack([gradients[id(step)] for step in self.steps]),
            "the gradient of the kernel": kernel,
            "the gradient of the biases": biases.reshape(self._shape),
        }


def _kept(tape: Tape, new: Value, old: Value, running: Optional[Array]) -> Value:
    """The new state of the sequences that are running, and the old one of the others."""
    if running is None:
        return new
    on, off = Value(running.astype(float)), Value(1.0 - running)
    return tape("add", tape("mul", new, on), tape("mul", old, off))


def _running(step: int, lengths: Optional[Array]) -> Optional[Array]:
    return None if lengths is None else (step < lengths)[:, None]


def lstm(
    kernel: Array,
    biases: Array,
    sequences: Sequences,
    tape: Tape,
    activation: str = "tanh",
    recurrent_activation: str = "sigmoid",
) -> Dict[str, Array]:
    """Forget, input, cell and output gates; the cell state is kept by one and added to by the next two."""
    gates, (cell, state) = _Gates(sequences.inputs, kernel, biases), map(Value, sequences.states)
    start, outputs = (cell, state), []
    for step, inputs in enumerate(gates.steps):
        sums = [
            tape(
                "add",
                tape("add", tape("matmul", inputs, gates.of_inputs[g]), tape("matmul", state, gates.of_state[g])),
                gates.biases[g][0],
            )
            for g in range(4)
        ]
        forget, take, give = (tape(recurrent_activation, sums[g]) for g in (0, 1, 3))
        new = tape("add", tape("mul", forget, cell), tape("mul", take, tape(activation, sums[2])))
        running = _running(step, sequences.lengths)
        output = tape("mul", give, tape(activation, new))
        outputs.append(output if running is None else tape("mul", output, Value(running.astype(float))))
        cell, state = _kept(tape, new, cell, running), _kept(tape, output, state, running)
    gradients = tape.gradients([*outputs, cell, state], [*sequences.of_outputs, *sequences.of_states])
    return {
        "the outputs": np.stack([value.array for value in outputs]),
        "the cell state": cell.array,
        "the state": state.array,
        **gates.gradients(gradients),
        "the gradient of the cell state": gradients[id(start[0])],
        "the gradient of the state": gradients[id(start[1])],
    }


def gru(
    kernel: Array,
    biases: Array,
    sequences: Sequences,
    tape: Tape,
    attention: Optional[Array] = None,
    activation: str = "tanh",
    recurrent_activation: str = "sigmoid",
) -> Dict[str, Array]:
    """Reset, update and candidate; the update gate decides how much of the old state is kept.

    The reset gate multiplies the state before the product, or after it where the products have a bias each.
    ``attention`` [batch, steps] weakens the update gate.
    """
    after = biases.ndim == 3
    gates, state, one = _Gates(sequences.inputs, kernel, biases), Value(sequences.states[0]), Value(np.ones(()))
    start, outputs, scores = state, [], []
    for step, here in enumerate(gates.steps):
        inputs = [tape("add", tape("matmul", here, gates.of_inputs[g]), gates.biases[g][0]) for g in range(3)]
        products = [tape("matmul", state, gates.of_state[g]) for g in range(3 if after else 2)]
        if after:
            products = [tape("add", product, gates.biases[g][1]) for g, product in enumerate(products)]
        reset, update = (tape(recurrent_activation, tape("add", inputs[g], products[g])) for g in (0, 1))
        if after:
            recurrent = tape("mul", reset, products[2])
        else:
            recurrent = tape("matmul", tape("mul", reset, state), gates.of_state[2])
        candidate = tape(activation, tape("add", inputs[2], recurrent))
        if attention is not None:
            scores.append(Value(attention[:, step, None]))
            update = tape("mul", tape("sub", one, scores[-1]), update)
        new = tape("add", tape("mul", update, state), tape("mul", tape("sub", one, update), candidate))
        running = _running(step, sequences.lengths)
        outputs.append(new if running is None else tape("mul", new, Value(running.astype(float))))
        state = _kept(tape, new, state, running)
    gradients = tape.gradients([*outputs, state], [*sequences.of_outputs, *sequences.of_states])
    record = {
        "the outputs": np.stack([value.array for value in outputs]),
        "the state": state.array,
        **gates.gradients(gradients),
        "the gradient of the state": gradients[id(start)],
    }
    if attention is not None:
        record["the gradient of the attention"] = joined(gradients, scores, 1)
    return record
