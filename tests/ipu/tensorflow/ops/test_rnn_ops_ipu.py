"""rnn_ops: recurrent layers and their gradients against the oracle's ops, unrolled over time."""

from __future__ import annotations

import functools
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle import recurrence

from .operations import DTYPES, run, values
from .recurrent_layers import BATCH, LENGTHS, SIZE, STEPS, UNITS, compare, sequences, weights


def _layer(strategy: Any, kind: Any, arrays: Tuple[np.ndarray, np.ndarray], dtype: str, **settings: Any) -> Any:
    with strategy.scope():
        layer = kind(UNITS, dtype=dtype, **settings)
        layer.build((STEPS, BATCH, SIZE))
        layer.set_weights([array.astype(dtype) for array in arrays])
    return layer


WORDS = ("activation", "recurrent_activation")
LAYERS: Dict[str, Tuple[str, str, Dict[str, Any]]] = {
    **{f"{name}-{dtype}": (name, dtype, {})
       for name in ("PopnnLSTM", "PopnnDynamicLSTM", "PopnnGRU") for dtype in DTYPES},
    **{f"PopnnGRU-after-{dtype}": ("PopnnGRU", dtype, {"reset_after": True}) for dtype in DTYPES},
    "PopnnDynamicGRU-time": ("PopnnDynamicGRU", "float32", {}),
    "PopnnDynamicGRU-batch": ("PopnnDynamicGRU", "float32", {}),
    "PopnnAUGRU": ("PopnnAUGRU", "float32", {}),
    **{f"{name}-{one}-{other}": (name, "float32", dict(zip(WORDS, (one, other))))
       for name in ("PopnnLSTM", "PopnnGRU") for one, other in (("relu", "tanh"), ("sigmoid", "relu"))},
    **{f"{name}-after": (name, "float16", {"reset_after": True}) for name in ("PopnnDynamicGRU", "PopnnAUGRU")},
}  # fmt: skip


@pytest.mark.parametrize("row", LAYERS)
def test_recurrent_layers_are_as_specified(tf: Any, ipu: Any, strategy: Any, row: str) -> None:
    """Outputs, states and all gradients; beyond its length a sequence gives 0 and keeps its state.

    The reset gate acts before the product with the state, or after it with a bias of its own. The update gate is
    multiplied by one minus the attention. One activation is that of what is new, the other that of all gates.
    """
    name, dtype, settings = LAYERS[row]
    lstm, attended = "LSTM" in name, name == "PopnnAUGRU"
    states = ["the cell state", "the state"] if lstm else ["the state"]
    held = weights(4 if lstm else 3, dtype, 2 if settings.get("reset_after") else 1)
    fed = sequences(len(states), dtype, LENGTHS if attended or "Dynamic" in name else None)
    layer = _layer(strategy, getattr(ipu.rnn_ops, name), held, dtype, **settings)
    attention = [values((BATCH, STEPS), 61, 0.125, 0.875, dtype)] if attended else []
    rest = [*attention, *([] if fed.lengths is None else [LENGTHS])]

    def call(x: Any, *given: Any) -> Any:
        begin, more = given[: len(states)], given[: len(states) - 1 : -1]  # lengths come before the attention
        begin = begin if lstm else begin[0]
        if row.endswith("batch"):
            outputs, state = layer(tf.transpose(x, (1, 0, 2)), *more, initial_state=begin, time_major=False)
            outputs = tf.transpose(outputs, (1, 0, 2))
        else:
            outputs, state = layer(x, *more, initial_state=begin)
        return (outputs, *state) if lstm else (outputs, state)

    result = run(
        tf, strategy, call, [fed.inputs, *fed.states, *rest], [fed.of_outputs, *fed.of_states], dtype,
        lambda: [layer.kernel, layer.biases],
    )  # fmt: skip
    inputs = ["the inputs", *states, *["the attention"] * attended, *["the lengths"] * (len(rest) > attended)]
    record = dict(zip(["the outputs", *states], result.outputs))
    record.update(zip([f"the gradient of {each}" for each in (*inputs, "the kernel", "the biases")], result.gradients))
    record.pop("the gradient of the lengths", None)

    given: Dict[str, Any] = {word: settings[word] for word in WORDS if word in settings}
    given.update({"attention": attention[0]} if attended else {})
    compare(record, functools.partial(recurrence.lstm if lstm else recurrence.gru, *held, fed, **given), dtype)


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
