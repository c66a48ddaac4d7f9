"""Recurrent layers of one direction, whose states and weights are inputs."""

from __future__ import annotations

from ipu_conformance.ops.row import TABLE, Row

_PLAIN = (True, 1, 0.0, False, False, False)
"""With biases, one layer, no dropout, not training, one direction, steps first."""


def _torch(name):
    def ask(torch, x, *inputs):
        states, weights = inputs[:-4], inputs[-4:]
        state = states if name == "lstm" else states[0]
        return getattr(torch, name)(x, state, list(weights), *_PLAIN)

    return ask


def _paddle(name):
    def ask(paddle, x, *inputs):
        states, weights = inputs[:-4], inputs[-4:]
        if not paddle.in_dynamic_mode():
            return _paddle_appended(paddle, name, x, list(states), list(weights))
        layer = getattr(paddle.nn, name)(x.shape[2], states[0].shape[2], time_major=True)
        layer._all_weights = list(weights)  # a layer makes its own, and Paddle has no function
        outputs, last = layer(x, states if name == "LSTM" else states[0])
        return [outputs, *(last if name == "LSTM" else [last])]

    return ask


def _paddle_appended(paddle, name, x, states, weights):
    """The op in a program, which leaves out the weights that a layer would make."""
    block = paddle.static.default_main_program().current_block()
    outputs = [block.create_var(dtype=x.dtype, shape=x.shape) for _ in range(1 + len(states))]
    kept, dropped = (block.create_var(dtype="uint8", persistable=False) for _ in range(2))
    mode = "RNN_TANH" if name == "SimpleRNN" else name
    sizes = {"hidden_size": states[0].shape[2], "input_size": x.shape[2]}
    block.append_op(
        type="rnn",
        inputs={"Input": x, "PreState": states, "WeightList": weights},
        outputs={"Out": outputs[0], "State": outputs[1:], "Reserve": kept, "DropoutState": dropped},
        attrs={"mode": mode, "num_layers": 1, "is_bidirec": False, **sizes},
    )
    return outputs


def _tf(name):
    """A Keras layer with the weights that it gets."""

    def ask(tf, x, *inputs):
        states, (kernel, recurrent, bias, more) = inputs[:-4], inputs[-4:]
        options = {"reset_after": True} if name == "GRU" else {}
        layer = getattr(tf.keras.layers, name)(
            recurrent.shape[1], time_major=True, return_sequences=True, return_state=True, dtype=x.dtype, **options
        )
        biases = [bias, more]
        if name == "GRU":  # Keras has the gates in the order update, reset, new
            kernel, recurrent, *biases = (_update_first(tf, value) for value in (kernel, recurrent, bias, more))
        cell = layer.cell
        cell.kernel, cell.recurrent_kernel = tf.transpose(kernel), tf.transpose(recurrent)
        cell.bias = tf.stack(biases) if name == "GRU" else biases[0] + biases[1]
        cell.built = True
        outputs, *last = layer(x, initial_state=[state[0] for state in states])
        return [outputs, *(state[None] for state in last)]

    return ask


def _update_first(tf, value):
    reset, update, new = tf.split(value, 3)
    return tf.concat([update, reset, new], 0)


TABLE.add(
    *(
        Row(name, _torch("rnn_tanh" if name == "simple_rnn" else name), _tf(keras), _paddle(keras))
        for name, keras in (("lstm", "LSTM"), ("gru", "GRU"), ("simple_rnn", "SimpleRNN"))
    )
)
