"""rnn_ops: recurrent layers and their gradients against the oracle's ops, unrolled over time.

The layers are those of TensorFlow 1: they make their variables in the graph of the program that calls them.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle import recurrence

from .operations import DTYPES, run_graph, values
from .recurrent_layers import BATCH, LENGTHS, SIZE, STEPS, UNITS, compare, sequences, weights


@pytest.fixture
def recurrent(ipu: Any, configure: Callable[..., Any]) -> Any:
    """The module with the layers: the vendor's TensorFlow has it until SDK 2.5, the add-ons from then on."""
    configure(1)
    if hasattr(ipu, "rnn_ops"):
        return ipu.rnn_ops
    return pytest.importorskip("ipu_tensorflow_addons.v1.layers", reason="the vendor's package of add-ons is missing")


def _arguments(tf: Any, held: Tuple[np.ndarray, np.ndarray], dtype: str, settings: Dict[str, Any]) -> Dict[str, Any]:
    kernel, biases = map(tf.compat.v1.constant_initializer, held)
    return {
        "num_units": UNITS,
        "dtype": tf.as_dtype(dtype),
        "weights_initializer": kernel,
        "bias_initializer": biases,
        **settings,
    }


OPEN = ("PopnnAUGRU", "PopnnDynamicGRU")
"""Layers whose reset and update gates begin with biases of 1, in some SDKs whatever initializer is given."""
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
    "PopnnAUGRU-after": ("PopnnAUGRU", "float16", {"reset_after": True}),
}  # fmt: skip


@pytest.mark.parametrize("row", LAYERS)
def test_recurrent_layers_are_as_specified(tf: Any, ipu: Any, recurrent: Any, row: str) -> None:
    """Outputs, states and all gradients; beyond its length a sequence gives 0 and keeps its state.

    The reset gate acts before the product with the state, or after it with a bias of its own. The update gate is
    multiplied by one minus the attention. One activation is that of what is new, the other that of all gates. Time is
    the first axis of the outputs, of inputs with batches first too.
    """
    name, dtype, settings = LAYERS[row]
    lstm, attended = "LSTM" in name, name == "PopnnAUGRU"
    states = ["the cell state", "the state"] if lstm else ["the state"]
    held = weights(4 if lstm else 3, dtype, 2 if settings.get("reset_after") else 1)
    if name in OPEN:
        held = held[0], np.ones(held[1].shape)
        held[1][2] = 0.0
    fed = sequences(len(states), dtype, LENGTHS if attended or "Dynamic" in name else None)
    attention = [values((BATCH, STEPS), 61, 0.125, 0.875, dtype)] if attended else []
    rest = [*attention, *([] if fed.lengths is None else [LENGTHS])]

    def call(x: Any, *given: Any) -> Any:
        begin, more = given[: len(states)], given[: len(states) - 1 : -1]  # lengths come before the attention
        begin = tf.compat.v1.nn.rnn_cell.LSTMStateTuple(*begin) if lstm else begin[0]
        layer = getattr(recurrent, name)(**_arguments(tf, held, dtype, settings))
        if row.endswith("batch"):
            return layer(tf.transpose(x, (1, 0, 2)), *more, initial_state=begin, time_major=False)
        return layer(x, *more, initial_state=begin)

    result, variables = run_graph(
        tf, ipu, call, [fed.inputs, *fed.states, *rest], [fed.of_outputs, *fed.of_states], dtype
    )
    inputs = ["the inputs", *states, *["the attention"] * attended]
    record = dict(zip(["the outputs", *states], result.outputs))
    record.update(zip([f"the gradient of {each}" for each in inputs], result.gradients))
    trained = dict(zip(sorted(variable.op.name for variable in variables), result.gradients[len(inputs) :]))
    of_weights = {place.rpartition("/")[2]: gradient for place, gradient in trained.items()}
    record["the gradient of the kernel"] = of_weights["kernel"]
    record["the gradient of the biases"] = of_weights["biases"]
    if "bias_r_u" in of_weights:
        record["the gradient of the biases"] = np.concatenate([of_weights["bias_r_u"], of_weights["bias_c"]])

    given: Dict[str, Any] = {word: settings[word] for word in WORDS if word in settings}
    given.update({"attention": attention[0]} if attended else {})

    def specification(tape: Any) -> Dict[str, np.ndarray]:
        specified = (recurrence.lstm if lstm else recurrence.gru)(*held, fed, tape, **given)
        if attended and settings:  # both products have the same bias
            specified["the gradient of the biases"] = specified["the gradient of the biases"].sum(axis=1)
        return specified

    compare(record, specification, dtype)


@pytest.mark.parametrize("name", ["PopnnLSTM", "PopnnGRU"])
def test_a_state_begins_with_zeros(tf: Any, ipu: Any, recurrent: Any, name: str) -> None:
    """Without an initial state the outputs are those of zeros."""
    gates, states = (4, 2) if name == "PopnnLSTM" else (3, 1)
    x, zeros, cotangent = sequences(1).inputs, [np.zeros((BATCH, UNITS))] * states, np.ones((STEPS, BATCH, UNITS))

    def call(x: Any, *given: Any) -> Any:
        layer = getattr(recurrent, name)(**_arguments(tf, weights(gates), "float32", {}))
        if not given:
            return layer(x)[0]
        return layer(x, tf.compat.v1.nn.rnn_cell.LSTMStateTuple(*given) if states == 2 else given[0])[0]

    without, explicit = (
        run_graph(tf, ipu, call, inputs, cotangent, "float32")[0].outputs[0] for inputs in ([x], [x, *zeros])
    )
    check.identical(actual=without, expected=explicit, what="the outputs without a state")


@pytest.mark.parametrize("name", ["PopnnLSTM", "PopnnDynamicLSTM"])
@pytest.mark.parametrize("kind", [tuple, list])
def test_the_state_of_an_lstm_is_a_state_tuple(tf: Any, recurrent: Any, name: str, kind: Any) -> None:
    """Cell state and state come as an LSTMStateTuple: a plain sequence does not say which is which."""
    with tf.Graph().as_default():
        begin = kind([tf.zeros((BATCH, UNITS))] * 2)
        lengths = [tf.constant(LENGTHS, tf.int32)] if "Dynamic" in name else []

        with check.raises(ValueError, match="LSTMStateTuple", what=f"{name} with a {kind.__name__}"):
            getattr(recurrent, name)(UNITS)(tf.zeros((STEPS, BATCH, SIZE)), *lengths, initial_state=begin)


OWN = {"bias_r_u": [2, UNITS], "bias_c": [1, UNITS]}


@pytest.mark.parametrize(
    ("name", "kernel", "biases"),
    [("PopnnLSTM", [9, 20], [4, 5]), ("PopnnGRU", [9, 15], [3, 5]), ("PopnnAUGRU", [9, 15], [3, 5])],
)
def test_weights_have_their_shapes(
    tf: Any, ipu: Any, recurrent: Any, name: str, kernel: List[int], biases: List[int]
) -> None:
    """One kernel serves inputs and state, the properties say the shapes, and a scope is reused."""
    properties: List[Any] = []

    def call(x: Any) -> Any:
        more = [tf.constant(LENGTHS, tf.int32), tf.ones((BATCH, STEPS))] if name == "PopnnAUGRU" else []
        for _ in "ab":
            with tf.compat.v1.variable_scope("net", reuse=tf.compat.v1.AUTO_REUSE):
                layer = getattr(recurrent, name)(UNITS, name="cell")
                outputs = layer(x, *more)[0]
        properties.extend([list(layer.canonical_weight_shape), list(layer.canonical_bias_shapes)])
        return outputs

    cotangent = np.ones((STEPS, BATCH, UNITS))
    _, variables = run_graph(tf, ipu, call, [sequences(1).inputs], cotangent, "float32")

    check.equal(actual=properties, expected=[kernel, biases], what="canonical_weight_shape and canonical_bias_shapes")
    shapes = {"kernel": kernel, "biases": biases, **(OWN if name == "PopnnAUGRU" else {})}
    check.equal(
        actual={variable.op.name: variable.shape.as_list() for variable in variables},
        expected={f"net/cell/{weight}": shape for weight, shape in shapes.items()},
        what="the variables of a layer that is called twice in one scope",
    )
