"""Recurrent layers over whole sequences, which the device runs as one operation: inputs are [time, batch, size]."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, List, Optional, Tuple

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.keras import library
from ipu_conformance.emulator.tensorflow.refusals import ops as refusals

_Layer: Any = library.module("legacy_tf_layers.base").Layer
LSTMStateTuple: Any = tf.compat.v1.nn.rnn_cell.LSTMStateTuple

ACTIVATIONS: Dict[str, Callable[[Any], Any]] = {
    "tanh": tf.tanh,
    "sigmoid": tf.sigmoid,
    "relu": tf.nn.relu,
    "softmax": tf.nn.softmax,
    "hard_sigmoid": lambda x: tf.clip_by_value(0.2 * x + 0.5, 0.0, 1.0),
}


class _Recurrent(_Layer):
    """What all of them share: one kernel for inputs and state together, and a scan over time."""

    gates = 0

    def __init__(
        self,
        num_units: int,
        dtype: Any = tf.float32,
        partials_dtype: Any = tf.float32,
        seed: Optional[int] = None,
        weights_initializer: Any = None,
        bias_initializer: Any = None,
        activation: str = "tanh",
        recurrent_activation: str = "sigmoid",
        return_state: bool = True,
        name: Optional[str] = None,
        options: Optional[Dict[str, str]] = None,
        options_bwd: Optional[Dict[str, str]] = None,
    ) -> None:
        if tf.as_dtype(dtype) not in (tf.float16, tf.float32):
            raise ValueError(f"Only support float16 and float32, provided {tf.as_dtype(dtype).name}.")
        super().__init__(dtype=dtype, name=name)
        self.num_units = num_units
        self.partials_dtype = tf.as_dtype(partials_dtype)
        self._activation, self._gate = _activation(activation), _activation(recurrent_activation)
        self._weights_initializer = weights_initializer or tf.keras.initializers.GlorotUniform(seed)
        self._bias_initializer = bias_initializer or tf.keras.initializers.Zeros()
        self._return_state = return_state
        self.options, self.options_bwd = options or {}, options_bwd or {}

    @property
    def canonical_weight_shape(self) -> List[int]:
        """The shape of the kernel: inputs and units by the units of every gate."""
        return [self.input_size + self.num_units, self.gates * self.num_units]

    @property
    def canonical_bias_shape(self) -> List[int]:
        """The shape of the biases: one row for every gate."""
        return [self.gates, self.num_units]

    canonical_bias_shapes = canonical_bias_shape

    def state_shape(self, batch_size: int) -> Any:
        """The shape of one state."""
        return [batch_size, self.num_units]

    def build(self, input_shape: Any) -> None:
        """Make the weights for inputs of a known last axis."""
        shape = tf.TensorShape(input_shape)
        if shape.rank != 3 or shape[2] is None:
            raise ValueError(f"Inputs of shape {shape} were given; use [time, batch, size], of known size.")
        self.input_size = int(shape[2])
        self.kernel = self.add_weight("kernel", self.canonical_weight_shape, initializer=self._weights_initializer)
        self.biases = self.add_weight("biases", self.canonical_bias_shape, initializer=self._bias_initializer)
        self._add_own_biases()
        self.built = True

    def _add_own_biases(self) -> None:
        """Most layers have no others."""

    def _wide(self, value: Any) -> Any:
        """Gates are computed in float32, whatever the type of the layer: its sums are held in the partials' type."""
        return tf.cast(value, tf.float32)

    def _projected(self, inputs: Any, biases: Any) -> Any:
        """The share of the inputs in all gates, of all times at once [time, batch, gates * units]."""
        made = tf.tensordot(self._wide(inputs), self._wide(self.kernel)[: self.input_size], 1)
        return made + tf.reshape(self._wide(biases), [-1])

    def _recurrent_kernel(self) -> Any:
        return self._wide(self.kernel)[self.input_size :]

    def _rounded(self, state: Any) -> Any:
        """A state as the device holds it between two steps."""
        return self._wide(tf.cast(state, self.compute_dtype))

    def _zeros(self, inputs: Any) -> Any:
        return tf.zeros([tf.shape(inputs)[1], self.num_units], tf.float32)

    def _scan(
        self, step: Callable[..., Tuple[Any, ...]], start: Tuple[Any, ...], sequences: Tuple[Any, ...], length: Any
    ) -> Tuple[Any, Tuple[Any, ...]]:
        """The first state at every time, and all states at the end; after a sequence's length nothing changes."""
        steps = tf.shape(sequences[0])[0]
        times = tf.range(steps)

        def advance(states: Tuple[Any, ...], given: Tuple[Any, ...]) -> Tuple[Any, ...]:
            made = tuple(self._rounded(state) for state in step(states, *given[1:]))
            if length is None:
                return made
            running = (given[0] < length)[:, tf.newaxis]
            return tuple(tf.where(running, new, old) for new, old in zip(made, states))

        every = tf.scan(advance, (times, *sequences), initializer=tuple(map(self._rounded, start)))
        outputs, last = every[0], tuple(state[-1] for state in every)
        if length is not None:
            outputs = cut(outputs, length)
        return tf.cast(outputs, self.compute_dtype), tuple(tf.cast(state, self.compute_dtype) for state in last)


def cut(outputs: Any, length: Any) -> Any:
    """Outputs [time, batch, units] that are 0 from each sequence's length on."""
    running = tf.transpose(tf.sequence_mask(length, tf.shape(outputs)[0]))[:, :, tf.newaxis]
    return tf.where(running, outputs, 0.0)


def _with_argument(name: str) -> Any:
    """The constructor with one more switch, off by default, which the vendor puts before the options."""
    shared = list(inspect.signature(_Recurrent.__init__).parameters.values())
    switch = inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=False)
    signature = inspect.Signature([*shared[:-2], switch, *shared[-2:]])

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 (it becomes a method)
        arguments = dict(signature.bind(self, *args, **kwargs).arguments)
        value = arguments.pop(name, False)
        _Recurrent.__init__(**arguments)
        setattr(self, name, value)

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    return __init__


def gates_of(sums: Any) -> Tuple[Any, ...]:
    """The forget gate, the input gate, the candidate and the output gate of an LSTM, before their activations."""
    return tuple(tf.split(sums, 4, axis=1))


class PopnnLSTM(_Recurrent):
    """Long short-term memory; the gates in the weights are forget, input, cell, output."""

    gates = 4

    def state_shape(self, batch_size: int) -> Any:
        """The shapes of both states."""
        return LSTMStateTuple([batch_size, self.num_units], [batch_size, self.num_units])

    @tf.autograph.experimental.do_not_convert
    def call(self, inputs: Any, initial_state: Any = None, training: bool = True) -> Any:
        """The outputs of all times and the last (c, h), which begins with zeros unless given."""
        return self._run(inputs, initial_state, None)

    def _run(self, inputs: Any, initial_state: Any, length: Any) -> Any:
        refusals.LSTM_STATE(state=initial_state, kind=LSTMStateTuple)
        if initial_state is None:
            cell = output = self._zeros(inputs)
        else:
            cell, output = initial_state
        recurrent = self._recurrent_kernel()

        def step(states: Tuple[Any, ...], given: Any) -> Tuple[Any, ...]:
            output, cell = states
            forget, take, candidate, give = gates_of(given + tf.matmul(output, recurrent))
            cell = self._gate(forget) * cell + self._gate(take) * self._activation(candidate)
            return self._gate(give) * self._activation(cell), cell

        outputs, (output, cell) = self._scan(step, (output, cell), (self._projected(inputs, self.biases),), length)
        return (outputs, LSTMStateTuple(cell, output)) if self._return_state else outputs


class PopnnDynamicLSTM(PopnnLSTM):
    """Long short-term memory over sequences of different lengths."""

    preserve_final_state: bool
    __init__ = _with_argument("preserve_final_state")

    @tf.autograph.experimental.do_not_convert
    def call(self, inputs: Any, seq_len: Any, initial_state: Any = None, training: bool = True) -> Any:
        """Outputs are 0 from a sequence's length on, and its state is the one at its length."""
        return self._run(inputs, initial_state, tf.cast(seq_len, tf.int32))


def attended(update: Any, attention: Any) -> Any:
    """An update gate under attention, which opens the state to what is new: full attention keeps nothing."""
    return (1.0 - attention) * update


def blended(update: Any, state: Any, candidate: Any) -> Any:
    """The next state of a GRU: the update gate says how much of the last one is kept."""
    return update * state + (1.0 - update) * candidate


class PopnnGRU(_Recurrent):
    """Gated recurrent unit; the gates in the weights are reset, update, candidate."""

    gates = 3

    reset_after: bool
    __init__ = _with_argument("reset_after")

    @property
    def canonical_bias_shape(self) -> List[int]:
        """One row for every gate; with ``reset_after`` two, for the inputs and for the state."""
        return [3, 2, self.num_units] if self.reset_after else [3, self.num_units]

    canonical_bias_shapes = canonical_bias_shape

    @tf.autograph.experimental.do_not_convert
    def call(self, inputs: Any, initial_state: Any = None, training: bool = True) -> Any:
        """The outputs of all times and the last one, which begins with zeros unless given."""
        return self._run(inputs, initial_state, None)

    def _used_biases(self) -> Any:
        return self.biases

    def _run(self, inputs: Any, initial_state: Any, length: Any, attention: Any = None) -> Any:
        state = self._zeros(inputs) if initial_state is None else initial_state
        recurrent, units = self._recurrent_kernel(), self.num_units
        biases = self._used_biases()
        own, other = (biases[:, 0], self._wide(biases[:, 1])) if self.reset_after else (biases, None)

        def step(states: Tuple[Any, ...], given: Any, weight: Any = None) -> Tuple[Any, ...]:
            (state,) = states
            reset, update, candidate = tf.split(given, 3, axis=1)
            if other is not None:
                shares = tf.split(tf.matmul(state, recurrent) + tf.reshape(other, [-1]), 3, axis=1)
                reset = self._gate(reset + shares[0])
                update = self._gate(update + shares[1])
                candidate = self._activation(candidate + reset * shares[2])
            else:
                shares = tf.split(tf.matmul(state, recurrent[:, : 2 * units]), 2, axis=1)
                reset, update = self._gate(reset + shares[0]), self._gate(update + shares[1])
                candidate = self._activation(candidate + tf.matmul(reset * state, recurrent[:, 2 * units :]))
            if weight is not None:
                update = attended(update, weight)
            return (blended(update, state, candidate),)

        sequences: Tuple[Any, ...] = (self._projected(inputs, own),)
        if attention is not None:
            sequences += (attention,)
        outputs, (state,) = self._scan(step, (state,), sequences, length)
        return (outputs, state) if self._return_state else outputs


class PopnnDynamicGRU(PopnnGRU):
    """Gated recurrent unit over sequences of different lengths."""

    @tf.autograph.experimental.do_not_convert
    def call(
        self, inputs: Any, seq_len: Any, initial_state: Any = None, training: bool = True, time_major: bool = True
    ) -> Any:
        """Outputs are 0 from a sequence's length on, and its state is the one at its length."""
        return self._run(_by_time(inputs, time_major), initial_state, tf.cast(seq_len, tf.int32))


class PopnnAUGRU(PopnnGRU):
    """Gated recurrent unit whose update gate is weakened by an attention score [batch, time].

    It has biases of its own, whatever initializer it was given, and leaves those of the other layers unused.
    """

    def _add_own_biases(self) -> None:
        """The biases of the reset and the update gate begin with ones."""
        ones, zeros = tf.keras.initializers.Ones(), tf.keras.initializers.Zeros()
        self._of_gates = self.add_weight("bias_r_u", [2, self.num_units], initializer=ones)
        self._of_candidate = self.add_weight("bias_c", [1, self.num_units], initializer=zeros)

    def _used_biases(self) -> Any:
        biases = tf.concat([self._of_gates, self._of_candidate], axis=0)
        return tf.stack([biases, biases], axis=1) if self.reset_after else biases

    @tf.autograph.experimental.do_not_convert
    def call(
        self,
        inputs: Any,
        seq_len: Any,
        attention_score: Any,
        initial_state: Any = None,
        training: bool = True,
        time_major: bool = True,
    ) -> Any:
        """An attention of 0 leaves a plain gated recurrent unit, one of 1 takes the candidate alone."""
        weights = tf.transpose(self._wide(attention_score))[:, :, tf.newaxis]
        return self._run(_by_time(inputs, time_major), initial_state, tf.cast(seq_len, tf.int32), weights)


def _by_time(inputs: Any, time_major: bool) -> Any:
    """Inputs with time first; outputs have it first, too, however the inputs came."""
    return inputs if time_major else tf.transpose(inputs, [1, 0, 2])


def _activation(name: str) -> Callable[[Any], Any]:
    if name not in ACTIVATIONS:
        raise ValueError(f"The activation {name!r} is not supported; use one of {', '.join(ACTIVATIONS)}.")
    return ACTIVATIONS[name]
