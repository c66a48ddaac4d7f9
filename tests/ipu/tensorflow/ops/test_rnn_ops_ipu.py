"""rnn_ops: recurrent layers and their gradients against the oracle's ops, unrolled over time."""

from __future__ import annotations

import functools
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.recurrence import gru, lstm

from .operations import DTYPES, OpResult, run, values
from .recurrent_layers import BATCH, LENGTHS, SIZE, STEPS, UNITS, compare, sequences, weights


def _record(result: OpResult, states: List[str], extra: int = 0) -> Dict[str, Any]:
    """Outputs and gradients by name; inputs are x and states, then whatever has no name, then kernel and biases."""
    gradients = [f"the gradient of {name}" for name in ("the inputs", *states)]
    record = dict(zip(["the outputs", *states], result.outputs))
    record.update(zip(gradients, result.gradients))
    record.update(
        zip(("the gradient of the kernel", "the gradient of the biases"), result.gradients[1 + len(states) + extra :])
    )
    return record


def _layer(strategy: Any, kind: Any, arrays: Tuple[np.ndarray, np.ndarray], dtype: str, **settings: Any) -> Any:
    with strategy.scope():
        layer = kind(UNITS, dtype=dtype, **settings)
        layer.build((STEPS, BATCH, SIZE))
        layer.set_weights([array.astype(dtype) for array in arrays])
    return layer


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dynamic", [False, True], ids=["PopnnLSTM", "PopnnDynamicLSTM"])
def test_lstm_is_as_specified(tf: Any, ipu: Any, strategy: Any, dynamic: bool, dtype: str) -> None:
    """Outputs, both states and all gradients; beyond its length a sequence gives 0 and keeps its state."""
    kind = ipu.rnn_ops.PopnnDynamicLSTM if dynamic else ipu.rnn_ops.PopnnLSTM
    held, fed = weights(4, dtype), sequences(2, dtype, LENGTHS if dynamic else None)
    layer = _layer(strategy, kind, held, dtype)

    def call(x: Any, c: Any, h: Any, lengths: Any) -> Any:
        outputs, state = layer(x, lengths, (c, h)) if dynamic else layer(x, initial_state=(c, h))
        return outputs, state.c, state.h

    result = run(
        tf, strategy, call, [fed.inputs, *fed.states, LENGTHS], [fed.of_outputs, *fed.of_states], dtype,
        lambda: [layer.kernel, layer.biases],
    )  # fmt: skip

    record = _record(result, ["the cell state", "the state"], extra=1)
    compare(record, functools.partial(lstm, *held, fed), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_gru_is_as_specified(tf: Any, ipu: Any, strategy: Any, after: bool, dtype: str) -> None:
    """The reset gate acts before the product with the state, or after it with a bias of its own."""
    held, fed = weights(3, dtype, 2 if after else 1), sequences(1, dtype)
    layer = _layer(strategy, ipu.rnn_ops.PopnnGRU, held, dtype, reset_after=after)
    result = run(
        tf, strategy, lambda x, h: layer(x, initial_state=h), [fed.inputs, *fed.states],
        [fed.of_outputs, *fed.of_states], dtype, lambda: [layer.kernel, layer.biases],
    )  # fmt: skip

    compare(_record(result, ["the state"]), functools.partial(gru, *held, fed), dtype)


@pytest.mark.parametrize("major", ["time", "batch"])
def test_a_dynamic_gru_ends_at_its_lengths(tf: Any, ipu: Any, strategy: Any, major: str) -> None:
    """Beyond its length a sequence gives 0 and keeps its state, with time or the batch first."""
    held, fed = weights(3), sequences(1, lengths=LENGTHS)
    layer = _layer(strategy, ipu.rnn_ops.PopnnDynamicGRU, held, "float32")

    def call(x: Any, h: Any, lengths: Any) -> Any:
        if major == "time":
            return layer(x, lengths, h)
        outputs, state = layer(tf.transpose(x, (1, 0, 2)), lengths, h, time_major=False)
        return tf.transpose(outputs, (1, 0, 2)), state

    result = run(
        tf, strategy, call, [fed.inputs, *fed.states, LENGTHS], [fed.of_outputs, *fed.of_states],
        variables=lambda: [layer.kernel, layer.biases],
    )  # fmt: skip

    compare(_record(result, ["the state"], extra=1), functools.partial(gru, *held, fed))


def test_attention_weakens_the_update_gate(tf: Any, ipu: Any, strategy: Any) -> None:
    """The update gate is multiplied by one minus the attention, to which a gradient flows as well."""
    held, fed = weights(3), sequences(1, lengths=LENGTHS)
    layer = _layer(strategy, ipu.rnn_ops.PopnnAUGRU, held, "float32")
    attention = values((BATCH, STEPS), 61, 0.125, 0.875)
    result = run(
        tf, strategy, lambda x, h, score, lengths: layer(x, lengths, score, initial_state=h),
        [fed.inputs, *fed.states, attention, LENGTHS], [fed.of_outputs, *fed.of_states],
        variables=lambda: [layer.kernel, layer.biases],
    )  # fmt: skip

    record = _record(result, ["the state"], extra=2)
    record["the gradient of the attention"] = result.gradients[2]
    compare(record, functools.partial(gru, *held, fed, attention=attention))


@pytest.mark.parametrize("activations", [("relu", "tanh"), ("sigmoid", "relu")], ids="-".join)
@pytest.mark.parametrize("name", ["PopnnLSTM", "PopnnGRU"])
def test_activations_are_those_that_were_asked_for(
    tf: Any, ipu: Any, strategy: Any, name: str, activations: Tuple[str, str]
) -> None:
    """One is that of what is new and of an LSTM's cell state, the other that of all gates."""
    rule, gates, states = (lstm, 4, 2) if name == "PopnnLSTM" else (gru, 3, 1)
    held, fed = weights(gates), sequences(states)
    named: Dict[str, Any] = dict(zip(("activation", "recurrent_activation"), activations))
    layer = _layer(strategy, getattr(ipu.rnn_ops, name), held, "float32", **named)

    def call(x: Any, *begin: Any) -> Any:
        outputs, state = layer(x, initial_state=begin if states == 2 else begin[0])
        return (outputs, *state) if states == 2 else (outputs, state)

    result = run(
        tf, strategy, call, [fed.inputs, *fed.states], [fed.of_outputs, *fed.of_states],
        variables=lambda: [layer.kernel, layer.biases],
    )  # fmt: skip

    words = ["the cell state", "the state"][-states:]
    compare(_record(result, words), functools.partial(rule, *held, fed, **named))


@pytest.mark.parametrize("name", ["PopnnDynamicGRU", "PopnnAUGRU"])
def test_sequences_of_any_length_are_reset_after_the_product(tf: Any, ipu: Any, strategy: Any, name: str) -> None:
    """Lengths and attention, in float16, go together with a bias of its own for the state's share of each gate."""
    dtype = "float16"
    held, fed = weights(3, dtype, 2), sequences(1, dtype, LENGTHS)
    layer = _layer(strategy, getattr(ipu.rnn_ops, name), held, dtype, reset_after=True)
    attention = values((BATCH, STEPS), 61, 0.125, 0.875, dtype) if name == "PopnnAUGRU" else None
    scores = [] if attention is None else [attention]

    result = run(
        tf, strategy, lambda x, h, *rest: layer(x, rest[-1], *rest[:-1], initial_state=h),
        [fed.inputs, *fed.states, *scores, LENGTHS], [fed.of_outputs, *fed.of_states], dtype,
        lambda: [layer.kernel, layer.biases],
    )  # fmt: skip

    record = _record(result, ["the state"], extra=1 + len(scores))
    record.update({"the gradient of the attention": result.gradients[2]} if scores else {})
    compare(record, functools.partial(gru, *held, fed, attention=attention), dtype)


@pytest.mark.parametrize("name", ["PopnnLSTM", "PopnnGRU"])
def test_a_state_begins_with_zeros(tf: Any, ipu: Any, strategy: Any, name: str) -> None:
    """Without an initial state the outputs are those of zeros."""
    gates, states = (4, 2) if name == "PopnnLSTM" else (3, 1)
    layer = _layer(strategy, getattr(ipu.rnn_ops, name), weights(gates), "float32")
    x, zeros = sequences(1).inputs, [np.zeros((BATCH, UNITS))] * states
    without = run(tf, strategy, lambda x: layer(x)[0], [x]).outputs[0]
    explicit = run(
        tf, strategy, lambda x, *zeros: layer(x, initial_state=zeros if states == 2 else zeros[0])[0], [x, *zeros]
    )

    check.identical(actual=without, expected=explicit.outputs[0], what="the outputs without a state")


@pytest.mark.parametrize(("name", "kernel", "biases"), [("PopnnLSTM", [9, 20], [4, 5]), ("PopnnGRU", [9, 15], [3, 5])])
def test_weights_have_their_shapes(ipu: Any, strategy: Any, name: str, kernel: List[int], biases: List[int]) -> None:
    """One kernel serves inputs and state; the properties say its shape and that of the biases."""
    with strategy.scope():
        layer = getattr(ipu.rnn_ops, name)(UNITS)
        layer.build((STEPS, BATCH, SIZE))

    weights = [list(weight.shape) for weight in layer.trainable_weights]
    canonical = [list(layer.canonical_weight_shape), list(layer.canonical_bias_shape)]
    check.equal(actual=weights, expected=[kernel, biases], what="the shapes of kernel and biases")
    check.equal(actual=canonical, expected=[kernel, biases], what="canonical_weight_shape and canonical_bias_shape")


@pytest.mark.parametrize(("name", "setting", "value"), [("LSTM", "dtype", "float64"), ("GRU", "activation", "selu")])
def test_what_the_device_cannot_do_is_refused(ipu: Any, name: str, setting: str, value: str) -> None:
    """Recurrent layers have float16 and float32, and some activations."""
    with check.raises(ValueError, match=value, what=f"a Popnn{name} with the {setting} {value}"):
        getattr(ipu.rnn_ops, f"Popnn{name}")(UNITS, **{setting: value})
