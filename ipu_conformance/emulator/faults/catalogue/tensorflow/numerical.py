"""Ways for the numerical operations and the Keras layers to compute something else."""

from __future__ import annotations

import functools
from typing import Any, Callable

from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.faults.catalogue import Fault, always, argument, patch, result

API, LAYERS, OPS = "tensorflow.api.ops", "tensorflow.layers", "tensorflow.ops"
NORMS, ACTIVATIONS = f"{API}.normalization_ops", f"{API}.nn_ops"
NORMALISE, LOSS, DROPOUT = f"{LAYERS}.channel_groups:normalise", f"{OPS}.ctc:_loss", f"{OPS}.dropout:dropout"
IMAGE, HISTOGRAM = f"{API}.image_ops:normalise_image", f"{API}.statistics_ops:histogram"


def _zeros(value: Any) -> Any:
    import tensorflow as tf

    return tf.zeros_like(value)


def _as_the_first(lengths: Any) -> Any:
    import tensorflow as tf

    return tf.zeros_like(lengths) + tf.convert_to_tensor(lengths)[0]


def _ones(value: Any) -> Any:
    import tensorflow as tf

    return tf.ones_like(value)


def _doubled(inputs: Any) -> Any:
    import tensorflow as tf

    return tf.nest.map_structure(lambda value: value * 2, inputs)


def _of_all_outputs(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function whose outputs are changed, None where there is none."""

    def changed(function: Any) -> Any:
        return function and functools.wraps(function)(lambda *arguments: change(function(*arguments)))

    return changed


for _name, _function, _what, _wrong in (
    # Normalisation
    ("grouping-otherwise", NORMALISE, "groups of strided channels are neighbours, and the reverse",
     argument("strided", lambda strided: not strided)),
    ("epsilon-lost", NORMALISE, "nothing is added to a variance", argument("epsilon", always(0.0))),
    ("always-trained", f"{NORMS}:group_norm", "scale and offset are always trained",
     argument("trainable", always(True))),
    # Activations
    ("gelu-otherwise", f"{ACTIVATIONS}:gelu", "gelu is exact when approximated, and the reverse",
     argument("approximate", lambda approximate: not approximate)),
    ("swish-steeper", f"{ACTIVATIONS}:swish", "the sigmoid of swish is twice as steep",
     lambda original, x, name=None: original(x * 2, name) / 2),
    ("hard-sigmoid-of-a-sixth", f"{ACTIVATIONS}:hard_sigmoid", "the hard sigmoid rises by a sixth",
     argument("x", lambda x: x * (5 / 6))),
    ("softmax-overflows", f"{ACTIVATIONS}:softmax", "a softmax takes exponentials as they are",
     argument("stable", always(False))),
    ("convolutions-swapped", f"{ACTIVATIONS}:multi_conv", "convolutions side by side come in reverse order",
     argument("func", _of_all_outputs(lambda outputs: outputs[::-1]))),
    ("noise-not-counted", f"{ACTIVATIONS}:nce_loss", "how often classes are drawn is left out of a loss",
     argument("sampled_values", lambda drawn: (drawn[0], *map(_ones, drawn[1:])))),
    # Sums
    ("segment-added", f"{API}.math_ops:segment_sum", "there is one segment too many",
     argument("num_segments", lambda number: number + 1)),
    # Temporal classification
    ("ctc-all-steps", LOSS, "every sequence is as long as the first", argument("length", _as_the_first)),
    ("ctc-other-blank", LOSS, "the blank is another class", argument("blank", lambda blank: (blank + 1) % 2)),
    ("ctc-softmax-twice", LOSS, "log probabilities are taken for logits", argument("normalised", always(False))),
    ("beam-last-blank", f"{OPS}.ctc:ctc_beam_search_decoder", "a beam search takes the last class for the blank",
     argument("blank_index", always(-1))),
    ("worst-path", f"{LAYERS}.classification:best_path", "the worst path is predicted",
     argument("scores", lambda scores: -scores)),
    # Dropout
    ("half-dropped", DROPOUT, "half as much is dropped", argument("rate", lambda rate: rate / 2)),
    ("kept-not-scaled", DROPOUT, "what is kept is not scaled up",
     lambda original, x, rate=0.5, *rest, **named: original(x, rate, *rest, **named) * (1.0 - rate)),
    ("pair-ignored", DROPOUT, "a dropout's own seed is not used", argument("seed", always(None))),
    ("noise-everywhere", DROPOUT, "every element is dropped on its own", argument("noise_shape", always(None))),
    ("dropout-in-inference", f"{LAYERS}.marks:in_training", "values are dropped out of training too", always(True)),
    # Recurrent layers
    ("lstm-gates-swapped", f"{LAYERS}.sequences:gates_of", "the forget gate and the input gate are swapped",
     result(lambda gates: (gates[1], gates[0], *gates[2:]))),
    ("gru-keeps-the-candidate", f"{LAYERS}.sequences:blended", "the update gate says how much is new",
     argument("update", lambda update: 1.0 - update)),
    ("attention-reversed", f"{LAYERS}.sequences:attended", "attention keeps the state",
     argument("attention", lambda attention: 1.0 - attention)),
    ("padding-kept", f"{LAYERS}.sequences:cut", "outputs go on after a sequence's end",
     lambda original, outputs, length: outputs),
    ("recurrent-relu", f"{LAYERS}.recurrent:_Extended.__init__", "recurrent layers have another activation",
     lambda original, *arguments, **settings: original(*arguments, **{**settings, "activation": "relu"})),
    # Images, histograms, sequences, marks
    ("image-not-scaled", IMAGE, "pixels are not scaled", argument("scale", always(1))),
    ("image-not-moved", IMAGE, "offsets of channels are left out", argument("channel_offsets", _zeros)),
    ("image-not-padded", IMAGE, "an image keeps its three channels", result(lambda image: image[..., :3])),
    ("histogram-signed", HISTOGRAM, "signs are counted though sizes are asked for",
     argument("absolute_of_input", always(False))),
    ("histogram-begun-anew", f"{HISTOGRAM}_update", "an update forgets the counts before",
     argument("hist", _zeros)),
    ("unused-rows-otherwise", f"{API}.slicing_ops:sequence_slice",
     "rows that nothing is put at are zeroed, or kept", argument("zero_unused", lambda zero: not zero)),
    ("mark-doubles", f"{LAYERS}.marks:RecomputationCheckpoint.call", "a mark doubles its value", result(_doubled)),
):  # fmt: skip
    catalogue.register(Fault(f"numerical-{_name}", "numerics", _function, _what, _wrong), __name__)


def numerical(name: str, function: str, what: str) -> Callable[[Any], Any]:
    """Register what replaces a numerical function."""
    return patch(f"numerical-{name}", "numerics", function, what)


@numerical("instances-together", f"{NORMS}:instance_norm", "all channels of a sample are normalised together")
def _together(original: Any, *arguments: Any, **settings: Any) -> Any:
    from ipu_conformance.emulator.tensorflow.api.ops import normalization_ops

    return normalization_ops.layer_norm(*arguments, **settings)


@numerical("layers-in-two", f"{NORMS}:layer_norm", "a sample is normalised in two groups")
def _in_two(original: Any, inputs: Any, *arguments: Any, **settings: Any) -> Any:
    from ipu_conformance.emulator.tensorflow.api.ops import normalization_ops

    return normalization_ops.group_norm(inputs, 2, *arguments, **settings)


@numerical("variance-for-deviation", f"{LAYERS}.channel_groups:standardised", "values are divided by the variance")
def _by_variance(original: Any, values: Any, axes: Any, epsilon: float) -> Any:
    import tensorflow as tf

    mean, variance = tf.nn.moments(values, axes, keepdims=True)
    return (values - mean) / (variance + epsilon)


@numerical("pieces-reversed", f"{OPS}.serialized:serialized_matmul", "pieces of a product are put together backwards")
def _pieces_reversed(original: Any, a: Any, b: Any, factor: int, dimension: str, *rest: Any, **named: Any) -> Any:
    import tensorflow as tf

    product = original(a, b, factor, dimension, *rest, **named)
    if dimension == "a_rows_b_columns":
        return product
    axis = -2 if dimension == "a_columns" else -1
    return tf.concat(tf.split(product, factor, axis)[::-1], axis)


@numerical("piece-lost", f"{OPS}.serialized:serialized_matmul", "the last piece of a sum of products is left out")
def _piece_lost(
    original: Any, a: Any, b: Any, factor: int, dimension: str, transpose_a: bool = False, transpose_b: bool = False,
    **named: Any,
) -> Any:  # fmt: skip
    import tensorflow as tf

    if dimension == "a_rows_b_columns" and factor > 1:
        a, b = (
            tf.concat(tf.split(tensor, factor, axis)[:-1], axis)
            for tensor, axis in ((a, -2 if transpose_a else -1), (b, -1 if transpose_b else -2))
        )
        factor -= 1
    return original(a, b, factor, dimension, transpose_a, transpose_b, **named)


@numerical("histogram-below", HISTOGRAM, "a value on a level counts below it")
def _below(original: Any, inputs: Any, levels: Any, absolute_of_input: bool = False) -> Any:
    import tensorflow as tf

    values = tf.abs(inputs) if absolute_of_input else tf.convert_to_tensor(inputs)
    return tf.reverse(original(-values, -tf.reverse(levels, [0])), [0])


@numerical("dropout-rate-off", DROPOUT, "a twenty-fifth more is dropped than asked for")
def _more_dropped(original: Any, x: Any, rate: float = 0.5, *arguments: Any, **settings: Any) -> Any:
    more = rate * 1.04
    return original(x, more, *arguments, **settings) * ((1 - more) / (1 - rate))


@numerical("dropout-halves-alike", DROPOUT, "both halves of a tensor lose the same")
def _halves_alike(original: Any, x: Any, *arguments: Any, **settings: Any) -> Any:
    import tensorflow as tf

    half = original(tf.ones_like(x[: x.shape[0] // 2]), *arguments, **settings)
    return x * tf.stop_gradient(tf.concat([half, half], 0))


@numerical("dropout-replicas-alike", DROPOUT, "all replicas lose the same")
def _replicas_alike(
    original: Any, x: Any, rate: float = 0.5, noise_shape: Any = None, seed: Any = None, *rest: Any
) -> Any:
    import tensorflow as tf

    from ipu_conformance.emulator.tensorflow.run import collectives

    noise = original(tf.ones_like(x), rate, noise_shape, seed, *rest)
    return x * tf.stop_gradient(collectives.all_gather(noise)[0])
