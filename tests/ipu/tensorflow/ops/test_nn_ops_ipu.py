"""nn_ops and math_ops: activations, products in pieces, convolutions side by side and temporal classification."""

from __future__ import annotations

import itertools
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.op import OPS, Term
from ipu_conformance.oracle.tolerance.ops import ULPS

from .operations import DTYPES, OpResult, as_specified, run, values, within

STEPS, BATCH, CLASSES = 4, 3, 3
LABELS, LABEL_LENGTHS, LENGTHS = np.array([[1, 2], [2, 2], [0, 1]]), np.array([2, 2, 1]), np.array([4, 4, 2])
"""Rows of labels by classes other than the blank, of which the third has one label and two steps."""

ACTIVATIONS: Dict[str, Tuple[str, Dict[str, Any], str, Dict[str, Any]]] = {
    "gelu": ("gelu", {}, "gelu_tanh", {}),
    "gelu-exact": ("gelu", {"approximate": False}, "gelu", {}),
    "swish": ("swish", {}, "silu", {}),
    "hard_sigmoid": ("hard_sigmoid", {}, "hardsigmoid", {"slope": 0.2, "offset": 0.5}),
    "softmax": ("softmax", {}, "softmax", {"axis": -1}),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_as_specified(tf: Any, ipu: Any, strategy: Any, name: str, dtype: str) -> None:
    """gelu is the one with tanh unless it is exact, the hard sigmoid rises by 0.2, softmax is along the last axis."""
    function, settings, op, attributes = ACTIVATIONS[name]
    x, cotangent = values((3, 7), 11, -4.0, 4.0, dtype), values((3, 7), 12, dtype=dtype)
    if dtype == "float32":  # in float16 exponents of these overflow
        x[2] *= 8
    result = run(tf, strategy, lambda x: getattr(ipu.nn_ops, function)(x, **settings), [x], [cotangent], dtype)

    as_specified(result, op, [x], cotangent, dtype, **attributes)


# Products


PIECES = {"a_columns": 6, "a_rows_b_columns": 3, "b_rows": 4}


@pytest.mark.parametrize("dimension", PIECES)
@pytest.mark.parametrize("side", ["plain", "transposed"])
def test_a_product_in_pieces_is_the_product(tf: Any, ipu: Any, strategy: Any, dimension: str, side: str) -> None:
    """Along any dimension, with a or b transposed or not, values and gradients are those of one product."""
    turned = side == "transposed"
    a, b = values((9, 6) if turned else (6, 9), 21), values((12, 9) if turned else (9, 12), 22)
    cotangent = values((6, 12), 23)
    result = run(
        tf, strategy,
        lambda a, b: ipu.math_ops.serialized_matmul(a, b, PIECES[dimension], dimension, turned, turned),
        [a, b], [cotangent],
    )  # fmt: skip

    as_specified(result, "matmul", [a, b], cotangent, transpose_a=turned, transpose_b=turned)


# Convolutions


DECORATED: Dict[str, Callable[[Any, Any], Any]] = {
    "called": lambda multi_conv, function: multi_conv(function),
    "decorator": lambda multi_conv, function: multi_conv(options=None)(function),
    "with options": lambda multi_conv, function: multi_conv(options={"planType": "parallel"})(function),
}


@pytest.mark.parametrize("how", DECORATED)
def test_convolutions_side_by_side_are_the_convolutions(tf: Any, ipu: Any, strategy: Any, how: str) -> None:
    """What a function with several convolutions gives, and its gradients, are those of each convolution."""
    images = [values((2, 5, 5, 3), 31), values((2, 5, 5, 2), 32)]
    kernels = [values((3, 3, 3, 4), 33), values((3, 3, 2, 4), 34)]
    cotangents = [values((2, 3, 3, 4), 35), values((2, 3, 3, 4), 36)]

    def convolve(*both: Any) -> Any:
        return [tf.nn.conv2d(image, kernel, 1, "VALID") for image, kernel in zip(both[:2], both[2:])]

    result = run(tf, strategy, DECORATED[how](ipu.nn_ops.multi_conv, convolve), [*images, *kernels], cotangents)
    orders = {"output": (0, 3, 1, 2), "0": (0, 3, 1, 2), "1": (3, 2, 0, 1)}  # to the oracle's channels second
    for place in (0, 1):
        one = OpResult((result.outputs[place],), (result.gradients[place], result.gradients[2 + place]))
        inputs = [images[place].transpose(orders["0"]), kernels[place].transpose(orders["1"])]
        cotangent = cotangents[place].transpose(orders["output"])
        as_specified(one, "conv", inputs, cotangent, turned=lambda what, value: value.transpose(orders[what]))


# Temporal classification: the sum over all alignments, written out


def _labels(blank: int) -> np.ndarray:
    """The rows of labels with classes counted without the blank, brought to numbers beside the blank."""
    others = [place for place in range(CLASSES) if place != blank]
    return np.array([[others[label % 2] for label in row] for row in LABELS])


def _alignments(logs: np.ndarray, blank: int) -> Dict[Tuple[int, ...], List[Tuple[Tuple[int, ...], float]]]:
    """Every label sequence with its alignments and their probabilities."""
    alignments: Dict[Tuple[int, ...], List[Tuple[Tuple[int, ...], float]]] = {}
    for alignment in itertools.product(range(CLASSES), repeat=len(logs)):
        merged = tuple(label for label, _ in itertools.groupby(alignment) if label != blank)
        chance = float(np.exp(sum(step[label] for step, label in zip(logs, alignment))))
        alignments.setdefault(merged, []).append((alignment, chance))
    return alignments


def _specified(logs: np.ndarray, blank: int) -> Tuple[np.ndarray, np.ndarray]:
    """The losses, and how probable each class is at each step among the alignments of the labels."""
    losses, shares = np.zeros(BATCH), np.zeros(logs.shape)
    for row, labels in enumerate(_labels(blank)):
        steps = LENGTHS[row]
        paths = _alignments(logs[:steps, row], blank)[tuple(labels[: LABEL_LENGTHS[row]])]
        total = sum(chance for _, chance in paths)
        losses[row] = -np.log(total)
        for alignment, chance in paths:
            for step, label in enumerate(alignment):
                shares[step, row, label] += chance / total
    return losses, shares


def _sources(logs: np.ndarray, size: np.ndarray) -> List[Term]:
    """Every step takes a logarithm of probabilities and of a sum of exponentials, of numbers up to the longest path.

    ``size`` is how strongly an error of a path's logarithm shows.
    """
    path = 1.0 + np.abs(logs).max(axis=2).sum(axis=0)  # of every row
    ulps = 2 * (ULPS["exp"] + ULPS["log"]) + ULPS["divide"] + 0.5
    return [Term(size * path.reshape((1, -1, 1) if size.ndim == 3 else -1), length=STEPS, ulps=ulps)]


def _logs(x: np.ndarray) -> np.ndarray:
    return np.asarray(OPS["log_softmax"].forward(x, axis=-1))


@pytest.mark.parametrize(("name", "blank"), [("ctc_loss_v2", 0), ("ctc_loss_v2", 2), ("ctc_loss_with_log_probs", 1)])
def test_the_loss_is_as_specified(tf: Any, ipu: Any, strategy: Any, name: str, blank: int) -> None:
    """The loss is minus the logarithm of the sum over alignments, of logits or of logarithms of probabilities.

    The gradient of logits takes the softmax into account; that of logarithms is minus the share of a class.
    """
    x, cotangent, plain = values((STEPS, BATCH, CLASSES), 41), values([BATCH], 42), name == "ctc_loss_v2"
    x = x if plain else _logs(x).astype(np.float32).astype(float)
    result = run(
        tf, strategy, lambda x, labels, *lengths: getattr(ipu.nn_ops, name)(labels, x, *lengths, blank_index=blank),
        [x, _labels(blank), LABEL_LENGTHS, LENGTHS], [cotangent],
    )  # fmt: skip
    logs = _logs(x) if plain else x
    losses, shares = _specified(logs, blank)
    counted = (np.arange(STEPS)[:, None] < LENGTHS)[:, :, None]
    weight = cotangent[None, :, None]

    ways = 1 if plain else 2  # probabilities may come and go on the way
    within(result.outputs[0], losses, _sources(logs, ways * np.ones(BATCH)), "the loss")
    # A class's share is the exponential of the difference of three logarithms of paths.
    size = np.abs(weight) * (ways * np.exp(logs) + 3 * shares) * (counted if plain else 1)
    slope = weight * (np.exp(logs) * counted - shares if plain else -shares)
    within(result.gradients[0], slope, _sources(logs, size), "the gradient of the loss")


@pytest.mark.parametrize("blank", [0, 1, -1])
def test_a_wide_beam_finds_the_best_paths(tf: Any, ipu: Any, strategy: Any, blank: int) -> None:
    """The paths are those of the sum over all alignments, best first, with minus the logarithms of their chances."""
    x, top = values((STEPS, BATCH, CLASSES), 43), 3
    decode, settings = ipu.nn_ops.ctc_beam_search_decoder, {"beam_width": 100, "top_paths": top, "blank_index": blank}
    scores, lengths, labels = run(tf, strategy, lambda *inputs: decode(*inputs, **settings), [x, LENGTHS]).outputs
    logs, empty = _logs(x), blank % CLASSES
    best = [_best(logs[: LENGTHS[row], row], empty, top) for row in range(BATCH)]

    expected = np.array([[score for _, score in paths] for paths in best])
    path = 1.0 + np.abs(logs).max(axis=2).sum(axis=0)[:, None]
    ulps = 2 * (ULPS["exp"] + ULPS["log"]) + 0.5
    within(scores, expected, [Term(np.broadcast_to(path, expected.shape), length=3 * STEPS, ulps=ulps)], "the scores")
    sizes = [[len(path) for path, _ in paths] for paths in best]
    check.equal(actual=lengths.tolist(), expected=sizes, what="the lengths of the paths, by row")
    filled = [[[*path, *[empty] * (STEPS - len(path))] for path, _ in paths] for paths in best]
    check.equal(actual=labels.tolist(), expected=filled, what="the labels of the paths, by row")


def _best(logs: np.ndarray, blank: int, top: int) -> List[Tuple[Tuple[int, ...], float]]:
    sums = {path: -np.log(sum(chance for _, chance in ways)) for path, ways in _alignments(logs, blank).items()}
    return sorted(sums.items(), key=lambda item: item[1])[:top]


# Losses over drawn classes


@pytest.mark.parametrize("name", ["nce_loss", "sampled_softmax_loss"])
def test_drawn_classes_that_are_true_stay(tf: Any, ipu: Any, strategy: Any, name: str) -> None:
    """The loss is over the true class and all that were drawn, less the logarithms of how often each is expected."""
    weights, biases, inputs = values((7, 4), 31), values((7,), 32), values((3, 4), 33)
    labels, drawn = np.array([[2], [5], [0]], np.int64), np.array([5, 1, 2, 6], np.int64)
    counts = np.array([[0.5], [0.25], [2.0]], np.float32), np.array([0.25, 1.0, 0.5, 4.0], np.float32)

    def loss(weights: Any, biases: Any, inputs: Any) -> Any:
        drawing = (tf.constant(drawn), tf.constant(counts[0]), tf.constant(counts[1]))
        return getattr(ipu.nn_ops, name)(weights, biases, tf.constant(labels), inputs, 4, 7, sampled_values=drawing)

    result = run(tf, strategy, loss, [weights, biases, inputs])
    w, b, x = (np.asarray(each, np.float64) for each in (weights, biases, inputs))
    classes = np.concatenate([labels, np.broadcast_to(drawn, (3, 4))], axis=1)
    expected_counts = np.concatenate([counts[0], np.broadcast_to(counts[1], (3, 4))], axis=1).astype(np.float64)
    products = np.einsum("rd,rcd->rcd", x, w[classes])
    logits = products.sum(axis=2) + b[classes] - np.log(expected_counts)
    if name == "sampled_softmax_loss":
        expected = np.log(np.exp(logits).sum(axis=1)) - logits[:, 0]
    else:
        signs = np.array([-1.0, 1.0, 1.0, 1.0, 1.0])
        expected = np.logaddexp(0, signs * logits).sum(axis=1)

    # A logit is a sum of six; the loss is one of five exponentials and logarithms of them.
    size = (np.abs(products).sum(axis=2) + np.abs(b[classes]) + np.abs(np.log(expected_counts)) + 2.0).sum(axis=1)
    within(result.outputs[0], expected, [Term(size, length=12, ulps=ULPS["exp"] + 2 * ULPS["log"] + 0.5)], name)
