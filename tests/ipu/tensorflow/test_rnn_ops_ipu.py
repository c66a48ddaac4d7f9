"""rnn_ops: recurrent layers and their gradients against the oracle's ops, unrolled over time."""

from __future__ import annotations

import functools
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from .operations import DTYPES, Made, run, values
from .rounded_tape import Tape, Value, joined, leaves, with_tolerances

STEPS, BATCH, SIZE, UNITS = 4, 2, 3, 5
LENGTHS = np.array([4, 2])
"""The second sequence ends after half of the steps."""


def _weights(gates: int, dtype: str, biases: int = 1) -> Tuple[np.ndarray, np.ndarray]:
    kernel = values((SIZE + UNITS, gates * UNITS), 51, -1.0, 1.0, dtype)
    return kernel, values((gates, UNITS) if biases == 1 else (gates, biases, UNITS), 52, -1.0, 1.0, dtype)


def _given(dtype: str, states: int) -> Tuple[np.ndarray, List[np.ndarray], np.ndarray, List[np.ndarray]]:
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


def _specified_lstm(dtype: str, lengths: Optional[np.ndarray], tape: Tape) -> Dict[str, np.ndarray]:
    """Forget, input, cell and output gates; the cell state is kept by one and added to by the next two."""
    kernel, biases = _weights(4, dtype)
    x, begin, outputs, last = _given(dtype, 2)
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


def _specified_gru(
    dtype: str, lengths: Optional[np.ndarray], after: bool, attention: Optional[np.ndarray], tape: Tape
) -> Dict[str, np.ndarray]:
    """Reset, update and candidate; the update gate says how much of the old state is kept."""
    kernel, biases = _weights(3, dtype, 2 if after else 1)
    x, begin, outputs, last = _given(dtype, 1)
    cut, state, one = _Cut(x, kernel, biases), Value(begin[0]), Value(np.ones(()))
    start, made, weights = state, [], []
    for step, here in enumerate(cut.x):
        inputs = [tape("add", tape("matmul", here, cut.of_inputs[g]), cut.biases[g][0]) for g in range(3)]
        shares = [tape("matmul", state, cut.of_state[g]) for g in range(3 if after else 2)]
        if after:
            shares = [tape("add", share, cut.biases[g][1]) for g, share in enumerate(shares)]
        reset, update = (tape("sigmoid", tape("add", inputs[g], shares[g])) for g in (0, 1))
        share = tape("mul", reset, shares[2]) if after else tape("matmul", tape("mul", reset, state), cut.of_state[2])
        candidate = tape("tanh", tape("add", inputs[2], share))
        if attention is not None:
            weights.append(Value(attention[:, step, None]))
            update = tape("mul", tape("sub", one, weights[-1]), update)
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
        record["the gradient of the attention"] = joined(found, weights, 1)
    return record


def _compare(made: Dict[str, Any], specification: Any, dtype: str) -> None:
    __tracebackhide__ = True
    expected = with_tolerances(specification, dtype)

    assert set(made) == set(expected)
    for name, (value, tolerance) in expected.items():
        check.close(actual=made[name], expected=value, tolerance=tolerance, what=name, dtype=dtype)


def _record(made: Made, states: List[str], extra: int = 0) -> Dict[str, Any]:
    """Outputs and gradients by name; inputs are x and states, then whatever has no name, then kernel and biases."""
    gradients = [f"the gradient of {name}" for name in ("the inputs", *states)]
    found = dict(zip(["the outputs", *states], made.outputs))
    found.update(zip(gradients, made.gradients))
    found.update(
        zip(("the gradient of the kernel", "the gradient of the biases"), made.gradients[1 + len(states) + extra :])
    )
    return found


def _layer(strategy: Any, kind: Any, weights: Tuple[np.ndarray, np.ndarray], dtype: str, **settings: Any) -> Any:
    with strategy.scope():
        layer = kind(UNITS, dtype=dtype, **settings)
        layer.build((STEPS, BATCH, SIZE))
        layer.set_weights([array.astype(dtype) for array in weights])
    return layer


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dynamic", [False, True], ids=["PopnnLSTM", "PopnnDynamicLSTM"])
def test_lstm_is_as_specified(tf: Any, ipu: Any, strategy: Any, dynamic: bool, dtype: str) -> None:
    """Outputs, both states and all gradients; beyond its length a sequence gives 0 and keeps its state."""
    kind = ipu.rnn_ops.PopnnDynamicLSTM if dynamic else ipu.rnn_ops.PopnnLSTM
    layer = _layer(strategy, kind, _weights(4, dtype), dtype)
    x, begin, outputs, last = _given(dtype, 2)

    def call(x: Any, c: Any, h: Any, lengths: Any) -> Any:
        made, state = layer(x, lengths, (c, h)) if dynamic else layer(x, initial_state=(c, h))
        return made, state.c, state.h

    made = run(tf, strategy, call, [x, *begin, LENGTHS], [outputs, *last], dtype, lambda: [layer.kernel, layer.biases])

    record = _record(made, ["the cell state", "the state"], extra=1)
    _compare(record, functools.partial(_specified_lstm, dtype, LENGTHS if dynamic else None), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_gru_is_as_specified(tf: Any, ipu: Any, strategy: Any, after: bool, dtype: str) -> None:
    """The reset gate acts before the product with the state, or after it with a bias of its own."""
    layer = _layer(
        strategy, ipu.rnn_ops.PopnnGRU, _weights(3, dtype, 2 if after else 1), dtype, reset_after=after
    )  # fmt: skip
    x, begin, outputs, last = _given(dtype, 1)
    made = run(
        tf, strategy, lambda x, h: layer(x, initial_state=h), [x, *begin], [outputs, *last], dtype,
        lambda: [layer.kernel, layer.biases],
    )  # fmt: skip

    _compare(_record(made, ["the state"]), functools.partial(_specified_gru, dtype, None, after, None), dtype)


@pytest.mark.parametrize("major", ["time", "batch"])
def test_a_dynamic_gru_ends_at_its_lengths(tf: Any, ipu: Any, strategy: Any, major: str) -> None:
    """Beyond its length a sequence gives 0 and keeps its state, with time or the batch first."""
    layer = _layer(strategy, ipu.rnn_ops.PopnnDynamicGRU, _weights(3, "float32"), "float32")
    x, begin, outputs, last = _given("float32", 1)

    def call(x: Any, h: Any, lengths: Any) -> Any:
        if major == "time":
            return layer(x, lengths, h)
        made, state = layer(tf.transpose(x, (1, 0, 2)), lengths, h, time_major=False)
        return tf.transpose(made, (1, 0, 2)), state

    made = run(
        tf, strategy, call, [x, *begin, LENGTHS], [outputs, *last], variables=lambda: [layer.kernel, layer.biases]
    )

    record = _record(made, ["the state"], extra=1)
    _compare(record, functools.partial(_specified_gru, "float32", LENGTHS, False, None), "float32")


def test_attention_weakens_the_update_gate(tf: Any, ipu: Any, strategy: Any) -> None:
    """The update gate is multiplied by one minus the attention, to which a gradient flows as well."""
    layer = _layer(strategy, ipu.rnn_ops.PopnnAUGRU, _weights(3, "float32"), "float32")
    x, begin, outputs, last = _given("float32", 1)
    attention = values((BATCH, STEPS), 61, 0.125, 0.875)
    made = run(
        tf, strategy, lambda x, h, score, lengths: layer(x, lengths, score, initial_state=h),
        [x, *begin, attention, LENGTHS], [outputs, *last], variables=lambda: [layer.kernel, layer.biases],
    )  # fmt: skip

    record = _record(made, ["the state"], extra=2)
    record["the gradient of the attention"] = made.gradients[2]
    _compare(record, functools.partial(_specified_gru, "float32", LENGTHS, False, attention), "float32")


@pytest.mark.parametrize("name", ["PopnnLSTM", "PopnnGRU"])
def test_a_state_begins_with_zeros(tf: Any, ipu: Any, strategy: Any, name: str) -> None:
    """Without an initial state the outputs are those of zeros."""
    gates, states = (4, 2) if name == "PopnnLSTM" else (3, 1)
    layer = _layer(strategy, getattr(ipu.rnn_ops, name), _weights(gates, "float32"), "float32")
    x, zeros = _given("float32", 1)[0], [np.zeros((BATCH, UNITS))] * states
    without = run(tf, strategy, lambda x: layer(x)[0], [x]).outputs[0]
    given = run(
        tf, strategy, lambda x, *zeros: layer(x, initial_state=zeros if states == 2 else zeros[0])[0], [x, *zeros]
    )

    check.identical(actual=without, expected=given.outputs[0], what="the outputs without a state")


@pytest.mark.parametrize(
    ("name", "kernel", "biases"),
    [("PopnnLSTM", [8, 20], [4, 5]), ("PopnnGRU", [8, 15], [3, 5])],
)
def test_weights_have_their_shapes(ipu: Any, strategy: Any, name: str, kernel: List[int], biases: List[int]) -> None:
    """One kernel serves inputs and state; the properties say its shape and that of the biases."""
    with strategy.scope():
        layer = getattr(ipu.rnn_ops, name)(UNITS)
        layer.build((STEPS, BATCH, SIZE))

    assert [list(weight.shape) for weight in layer.trainable_weights] == [kernel, biases]
    assert [list(layer.canonical_weight_shape), list(layer.canonical_bias_shape)] == [kernel, biases]


def test_what_the_device_cannot_do_is_refused(ipu: Any) -> None:
    """Only float16 and float32 are for recurrent layers, and only some activations."""
    with pytest.raises(ValueError, match="float64"):
        ipu.rnn_ops.PopnnLSTM(UNITS, dtype="float64")
    with pytest.raises(ValueError, match="selu"):
        ipu.rnn_ops.PopnnGRU(UNITS, activation="selu")
