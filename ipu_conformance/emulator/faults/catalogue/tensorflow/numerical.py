"""Ways for the numerical operations and the Keras layers to compute something else."""

from __future__ import annotations

from typing import Any

from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.faults.catalogue import Fault, always, never, rule
from ipu_conformance.emulator.faults.decisions import tensorflow_ops

POINT = tensorflow_ops.point


def _other(value: Any) -> Any:
    return not value


def _none_of_it(value: Any) -> Any:
    return value * 0


def _rest(value: Any) -> Any:
    return 1.0 - value


for _name, _rule, _what, _wrong in (
    # Normalisation
    ("grouping-otherwise", "strided-grouping", "groups of strided channels are neighbours, and the reverse", _other),
    ("groups-of-any-size", "groups-checked", "groups need not divide the channels", never),
    ("instances-together", "instance-groups", "all channels of a sample are normalised together", always(1)),
    ("layers-in-two", "layer-groups", "a sample is normalised in two groups", always(2)),
    ("epsilon-lost", "norm-epsilon", "nothing is added to a variance", _none_of_it),
    ("variance-for-deviation", "norm-factor", "values are divided by the variance", lambda value: value * value),
    ("always-trained", "norm-trainable", "scale and offset are always trained", always(True)),
    # Activations
    ("gelu-otherwise", "gelu-approximate", "gelu is exact when approximated, and the reverse", _other),
    ("swish-steeper", "swish-slope", "the sigmoid of swish is twice as steep", always(2.0)),
    ("hard-sigmoid-of-a-sixth", "hard-sigmoid-slope", "the hard sigmoid rises by a sixth", always(1 / 6)),
    ("softmax-overflows", "softmax-stable", "a softmax takes exponentials as they are", never),
    # Products and sums
    ("pieces-reversed", "serial-pieces", "pieces of a product are put together backwards", lambda value: value[::-1]),
    ("piece-lost", "serial-sum", "the last piece of a sum of products is left out", lambda value: value[:-1]),
    ("segment-added", "segments", "there is one segment too many", lambda value: value + 1),
    # Temporal classification
    ("ctc-all-steps", "ctc-length", "every sequence is as long as the first", lambda value: value * 0 + value[0]),
    ("ctc-other-blank", "ctc-blank", "the blank is another class", lambda value: (value + 1) % 2),
    ("ctc-softmax-twice", "ctc-normalised", "log probabilities are taken for logits", never),
    ("beam-last-blank", "beam-classes", "a beam search takes the last class for the blank", sorted),
    ("worst-path", "best-path", "the worst path is predicted", lambda value: -value),
    # Dropout
    ("half-dropped", "dropout-rate", "half as much is dropped", lambda value: value / 2),
    ("kept-not-scaled", "dropout-scale", "what is kept is not scaled up", always(1.0)),
    ("pair-ignored", "seed-used", "a dropout's own seed is not used", never),
    ("noise-everywhere", "noise-shape", "every element is dropped on its own", always(None)),
    ("dropout-in-inference", "dropout-in-training", "values are dropped out of training too", always(True)),
    # Recurrent layers
    ("lstm-gates-swapped", "lstm-gates", "the forget gate and the input gate are swapped", always((1, 0, 2, 3))),
    ("gru-keeps-the-candidate", "gru-kept", "the update gate says how much is new", _rest),
    ("attention-reversed", "attention", "attention keeps the state", _rest),
    ("padding-kept", "padding-zeroed", "outputs go on after a sequence's end", lambda value: value | True),
    # Images, histograms, sequences, marks
    ("image-not-scaled", "image-scale", "pixels are not scaled", always(1)),
    ("image-not-moved", "image-offsets", "offsets of channels are left out", _none_of_it),
    ("image-not-padded", "image-padding", "an image keeps its three channels", always(0)),
    ("histogram-signed", "histogram-absolute", "signs are counted though sizes are asked for", never),
    ("histogram-below", "histogram-side", "a value on a level counts below it", always("left")),
    ("histogram-begun-anew", "histogram-kept", "an update forgets the counts before", _none_of_it),
    ("unused-rows-otherwise", "unused-zeroed", "rows that nothing is put at are zeroed, or kept", _other),
    ("mark-doubles", "mark", "a mark doubles its value", lambda value: value * 2),
):
    catalogue.register(Fault(f"numerical-{_name}", "numerics", POINT, _what, rule(_rule, _wrong)), __name__)
