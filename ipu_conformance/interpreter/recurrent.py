"""ONNX's LSTM of one direction, and its gradient by steps from the last to the first."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Tuple

import numpy as np

from ipu_conformance.interpreter.calls import Array, Call, ExecutionError, Table, oracle

GATES = ("input", "output", "forget", "cell")
"""The order of the gates in weights and biases."""
READ = ("x", "kernel", "recurrent", "bias", "lengths", "hidden", "cell")


class _Step(NamedTuple):
    """What one step has computed from the states before it."""

    gates: Dict[str, Array]
    before: Tuple[Array, Array]
    cell: Array


def _forward(given: Dict[str, Array]) -> Tuple[List[Array], List[_Step]]:
    """The hidden state after every step, and the steps."""
    kernel, recurrent = given["kernel"][0], given["recurrent"][0]
    bias = sum(np.split(given["bias"][0], 2))
    hidden, cell = given["hidden"][0], given["cell"][0]
    outputs: List[Array] = []
    steps: List[_Step] = []
    for x in given["x"]:
        parts = np.split(x @ kernel.T + hidden @ recurrent.T + bias, len(GATES), axis=-1)
        gates = {name: oracle("tanh" if name == "cell" else "sigmoid", part) for name, part in zip(GATES, parts)}
        before = (hidden, cell)
        cell = gates["forget"] * cell + gates["input"] * gates["cell"]
        hidden = gates["output"] * np.tanh(cell)
        outputs.append(hidden)
        steps.append(_Step(gates, before, cell))
    return outputs, steps


def _lstm(call: Call) -> Tuple[Array, ...]:
    """The states of all steps, the last hidden state and the last cell."""
    given = _given(call, READ[: len(call.inputs)], call.inputs)
    outputs, steps = _forward(given)
    return (np.stack(outputs)[:, None], outputs[-1][None], steps[-1].cell[None])[: len(call.op.outputs)]


def _given(call: Call, names: Tuple[str, ...], values: Tuple[object, ...]) -> Dict[str, Array]:
    """The inputs by name; a bias and states that are left out are zeros."""
    given = {name: np.asarray(value) for name, value in zip(names, values) if value is not None}
    if "lengths" in given or str(call.attribute("direction", default="forward")) != "forward":
        raise ExecutionError(f"{call.place} has lengths of sequences or runs backwards, which are not known.")
    units, (_, batch, _) = given["recurrent"].shape[-1], given["x"].shape
    given.setdefault("bias", np.zeros((1, 2 * len(GATES) * units)))
    for state in ("hidden", "cell"):
        given.setdefault(state, np.zeros((1, batch, units)))
    return given


def _gradient(call: Call) -> Tuple[Array, ...]:
    """Reads the gradient of all hidden states, then what the forward op read."""
    dy, *values = call.given
    if dy.ndim != len(("step", "direction", "sample", "unit")):
        raise ExecutionError(f"{call.place} reads the gradient of a last state, which is not known.")
    names = tuple(name for name in READ if name != "lengths")
    given = _given(call, names[: len(values)], tuple(values))
    kernel, recurrent = given["kernel"][0], given["recurrent"][0]
    _, steps = _forward(given)
    gradients = {name: np.zeros_like(given[name]) for name in names}
    d_hidden, d_cell = np.zeros_like(given["hidden"][0]), np.zeros_like(given["cell"][0])
    for number in reversed(range(len(steps))):
        gates, (hidden, cell), after = steps[number]
        d_hidden = d_hidden + dy[number, 0]
        bent = np.tanh(after)
        d_cell = d_cell + d_hidden * gates["output"] * (1 - bent**2)
        by_gate = {
            "input": d_cell * gates["cell"],
            "output": d_hidden * bent,
            "forget": d_cell * cell,
            "cell": d_cell * gates["input"],
        }
        bends = {name: 1 - gates[name] ** 2 if name == "cell" else gates[name] * (1 - gates[name]) for name in GATES}
        sums = np.concatenate([by_gate[name] * bends[name] for name in GATES], axis=-1)
        gradients["x"][number] = sums @ kernel
        gradients["kernel"][0] += sums.T @ given["x"][number]
        gradients["recurrent"][0] += sums.T @ hidden
        gradients["bias"][0] += np.tile(sums.sum(axis=0), 2)
        d_hidden, d_cell = sums @ recurrent, d_cell * gates["forget"]
    gradients["hidden"][0], gradients["cell"][0] = d_hidden, d_cell
    return _asked(call, [gradients[name] for name in names[: len(values)]])


def _asked(call: Call, gradients: List[Array]) -> Tuple[Array, ...]:
    """The gradients that the op gives, which are those of some of its inputs in their order."""
    asked: List[Array] = []
    for gradient in gradients:
        if len(asked) < len(call.op.outputs) and gradient.shape == call.shape(len(asked)):
            asked.append(gradient)
    return tuple(asked)


RECURRENT: Table = {"LSTM": _lstm, "LSTMGrad": _gradient}
"""The recurrent ops by their types."""
