"""Losses over classes and over rows of features: cross entropy in its variants, margins, cosine and triplet losses.

The cross entropies are one sum, -sum(a_c h_c(x)) over the classes on axis 1: h is x itself (nll_loss), its log-softmax
(cross_entropy_loss) or its logarithm (cross_entropy_of_probabilities), and ``a`` holds the targets, smoothed and
weighted.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle.op import Array, Term
from ipu_conformance.oracle.ops.arithmetic.activation import sigmoid, softplus
from ipu_conformance.oracle.ops.arithmetic.softmax import log_softmax, log_softmax_error, softmax
from ipu_conformance.oracle.ops.losses.loss import REDUCTIONS, add_loss
from ipu_conformance.oracle.sample import Chooser, Sample
from ipu_conformance.oracle.tolerance.ops import ULPS


def _targets(
    x: Array,
    target: Array,
    weight: Optional[Array] = None,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tuple[Array, float]:
    """The coefficient of every class and what a mean divides by.

    Targets are class numbers (batch, *space), where ``ignore_index`` costs nothing, or probabilities shaped like x.
    A mean divides by the total weight of the classes that are the targets; with probabilities by their number.
    """
    classes = x.shape[1]
    by_class = (np.ones(classes) if weight is None else weight).reshape((1, -1) + (1,) * (x.ndim - 2))
    if target.dtype.kind == "f":
        return by_class * ((1 - label_smoothing) * target + label_smoothing / classes), target.size / classes
    kept = np.expand_dims(target != ignore_index, 1)
    hit = kept * (np.expand_dims(target, 1) == np.arange(classes).reshape(by_class.shape))
    coefficients = by_class * ((1 - label_smoothing) * hit + label_smoothing / classes * kept)
    return coefficients, float((by_class * hit).sum())


def _add_cross_entropy(name: str, h: Any, h_vjp: Any, h_terms: Any, h_vjp_terms: Any, draw: Any) -> None:
    """Add -sum(a h(x)); some attributes are those of h (normalise), the others those of the targets."""

    def split(attributes: Any) -> Tuple[Any, Any]:
        of_h = {key: value for key, value in attributes.items() if key == "normalise"}
        return of_h, {key: value for key, value in attributes.items() if key != "normalise"}

    def values(x: Array, *rest: Array, **attributes: Any) -> Array:
        of_h, others = split(attributes)
        return -(_targets(x, *rest, **others)[0] * h(x, **of_h)).sum(axis=1)

    def pull(g: Array, x: Array, *rest: Array, **attributes: Any) -> Sequence[Optional[Array]]:
        of_h, others = split(attributes)
        return [h_vjp(-np.expand_dims(g, 1) * _targets(x, *rest, **others)[0], x, **of_h), *([None] * len(rest))]

    def terms(x: Array, *rest: Array, **attributes: Any) -> Sequence[Term]:
        of_h, others = split(attributes)
        a = _targets(x, *rest, **others)[0]
        product = (a * np.abs(h(x, **of_h))).sum(axis=1)
        each = [Term((a * t.magnitude).sum(axis=1), t.length, t.ulps, t.where) for t in h_terms(x, **of_h)]
        return [*each, Term(product, length=x.shape[1] + 1, where="accumulate"), Term(product, ulps=1.5)]

    def pull_terms(g: Array, x: Array, *rest: Array, **attributes: Any) -> Sequence[Sequence[Term]]:
        of_h, others = split(attributes)
        a = np.abs(np.expand_dims(g, 1)) * _targets(x, *rest, **others)[0]
        return [h_vjp_terms(a, x, **of_h), *([[]] * len(rest))]

    def total(x: Array, *rest: Array, **attributes: Any) -> float:
        return _targets(x, *rest, **split(attributes)[1])[1]

    add_loss(name, values, pull, terms, pull_terms, draw, total)


def _log_softmax_vjp_terms(a: Array, x: Array) -> List[Term]:
    """The gradient y sum(a) - a."""
    y, classes = softmax(x, axis=1), x.shape[1]
    product = y * a.sum(axis=1, keepdims=True)
    depth = 1.0 + np.abs(x - x.max(axis=1, keepdims=True))
    return [
        Term(a + product * depth, ulps=ULPS["exp"] + ULPS["divide"] + 1.0),
        Term(2 * product, length=classes, where="accumulate"),
    ]


def _log_vjp(g: Array, x: Array, normalise: bool = False) -> Array:
    return g / x - normalise * g.sum(axis=1, keepdims=True) / x.sum(axis=1, keepdims=True)


def _log_terms(x: Array, normalise: bool = False) -> List[Term]:
    sums = np.broadcast_to(np.abs(np.log(x.sum(axis=1, keepdims=True))), x.shape)
    terms = [Term(1.0 + np.abs(np.log(x)) + normalise * sums, ulps=ULPS["log"] + normalise * (ULPS["exp"] + 2))]
    return [*terms, Term(np.ones_like(x), length=x.shape[1], where="accumulate")] if normalise else terms


def _log_vjp_terms(a: Array, x: Array, normalise: bool = False) -> List[Term]:
    shared = normalise * a.sum(axis=1, keepdims=True) / x.sum(axis=1, keepdims=True)
    terms = [Term(a / x + shared, ulps=ULPS["divide"] + 1 + normalise * (ULPS["exp"] + ULPS["log"] + 2))]
    return [*terms, Term(2 * (a / x + shared), x.shape[1], where="accumulate")] if normalise else terms


def _log(x: Array, normalise: bool = False) -> Array:
    """The logarithm of x; with ``normalise``, as Keras has it, of x over its sum."""
    return np.log(x) - normalise * np.log(x.sum(axis=1, keepdims=True))


def _draw_classes(chooser: Chooser, low: float, high: float, smoothing: Sequence[float]) -> Sample:
    batch, classes, space = chooser.integer(1, 5), chooser.integer(2, 6), chooser.shape(0, 2, 3)
    x = chooser.array((batch, classes, *space), low, high)
    target = chooser.integers((batch, *space), 0, classes - 1)
    plain = {"ignore_index": -100, "label_smoothing": 0.0, "reduction": chooser.choice(REDUCTIONS)}
    if chooser.integer(0, 2) == 0:
        return Sample((x, target), plain)
    variant = {"ignore_index": chooser.choice((-100, classes - 1)), "label_smoothing": chooser.choice(smoothing)}
    target.flat[0] = 0  # a mean over nothing is not defined: one target is always kept
    rest = (chooser.array((classes,), 0.5, 2.0),) if chooser.boolean() else ()
    return Sample((x, target, *rest), {**plain, **variant})


def _draw_nll(chooser: Chooser) -> Sample:
    return _draw_classes(chooser, -3.0, -0.1, (0.0,))


def _draw_cross_entropy(chooser: Chooser) -> Sample:
    return _draw_classes(chooser, -4.0, 4.0, (0.0, 0.125))


def _draw_soft(chooser: Chooser) -> Sample:
    batch, classes, space = chooser.integer(1, 5), chooser.integer(2, 6), chooser.shape(0, 2, 3)
    x = chooser.array((batch, classes, *space), -4.0, 4.0)
    target = chooser.array(x.shape, 0.1, 1.0)
    smoothing = {"label_smoothing": chooser.choice((0.0, 0.125)), "reduction": chooser.choice(REDUCTIONS)}
    return Sample((x, target / target.sum(axis=1, keepdims=True)), smoothing)


def _draw_of_probabilities(chooser: Chooser) -> Sample:
    sample = _draw_classes(chooser, 0.05, 0.95, (0.0,))
    x, target = sample.inputs[:2]
    attributes = {"normalise": chooser.boolean(), "reduction": sample.attributes["reduction"]}
    return Sample((x / x.sum(axis=1, keepdims=True), target), attributes)


_add_cross_entropy("nll_loss", lambda x: x, lambda g, x: g, lambda x: [], lambda a, x: [Term(a, ulps=1.0)], _draw_nll)
for _name, _draw in (("cross_entropy_loss", _draw_cross_entropy), ("soft_cross_entropy_loss", _draw_soft)):
    _add_cross_entropy(
        _name,
        lambda x: log_softmax(x, axis=1),
        lambda g, x: g - softmax(x, axis=1) * g.sum(axis=1, keepdims=True),
        lambda x: log_softmax_error(log_softmax(x, axis=1), x, axis=1)[0],
        _log_softmax_vjp_terms,
        _draw,
    )
_add_cross_entropy("cross_entropy_of_probabilities", _log, _log_vjp, _log_terms, _log_vjp_terms, _draw_of_probabilities)


# Losses of rows: every row of features (batch, features) gives one value.


def _cosine(x: Array, other: Array, epsilon: float) -> Tuple[Array, Array, Array]:
    """The cosine between rows and the two lengths, with a column each; ``epsilon`` is added to squared lengths."""
    a, b = (np.sqrt((v * v).sum(axis=1, keepdims=True) + epsilon) for v in (x, other))
    return (x * other).sum(axis=1, keepdims=True) / (a * b), a, b


def _cosine_loss(x: Array, other: Array, target: Array, *, margin: float = 0.0, epsilon: float = 0.0) -> Array:
    """1 - cosine for rows with target 1, and the cosine beyond the margin for rows with target -1."""
    cosine = _cosine(x, other, epsilon)[0][:, 0]
    return np.where(target > 0, 1.0 - cosine, np.maximum(cosine - margin, 0.0))


def _cosine_slope(x: Array, other: Array, target: Array, margin: float, epsilon: float) -> Array:
    cosine = _cosine(x, other, epsilon)[0][:, 0]
    return np.where(target > 0, -1.0, 1.0 * (cosine > margin))[:, None]


def _cosine_pull(
    g: Array, x: Array, other: Array, target: Array, *, margin: float = 0.0, epsilon: float = 0.0
) -> Sequence[Optional[Array]]:
    cosine, a, b = _cosine(x, other, epsilon)
    inner = g[:, None] * _cosine_slope(x, other, target, margin, epsilon)
    return inner * (other / (a * b) - cosine * x / a**2), inner * (x / (a * b) - cosine * other / b**2), None


def _cosine_terms(
    x: Array, other: Array, target: Array, *, margin: float = 0.0, epsilon: float = 0.0
) -> Sequence[Term]:
    features = x.shape[1]
    size = np.ones(len(x))  # |a|.|b| sums are at most the product of the lengths
    return [Term(2 * size, length=features + 2, where="accumulate"), Term(size, ulps=ULPS["sqrt"] + ULPS["divide"] + 2)]


def _cosine_pull_terms(
    g: Array, x: Array, other: Array, target: Array, *, margin: float = 0.0, epsilon: float = 0.0
) -> Sequence[Sequence[Term]]:
    _, a, b = _cosine(x, other, epsilon)
    inner = np.abs(g[:, None] * _cosine_slope(x, other, target, margin, epsilon))
    terms: List[Sequence[Term]] = []
    for mine, theirs, length in ((x, other, a), (other, x, b)):
        size = inner * (np.abs(theirs) / (a * b) + np.abs(mine) / length**2)
        terms.append(
            [
                Term(size, ulps=ULPS["sqrt"] + 2 * ULPS["divide"] + 2),
                Term(2 * size, length=x.shape[1] + 2, where="accumulate"),
            ]
        )
    return [*terms, []]


def _draw_cosine(chooser: Chooser) -> Sample:
    shape = (chooser.integer(1, 5), chooser.integer(2, 6))
    x, other = chooser.array(shape, 0.25, 2.0), chooser.array(shape, 0.25, 2.0)
    target = 2.0 * chooser.integers(shape[:1], 0, 1) - 1.0
    attributes = {
        "margin": chooser.choice((0.0, -0.5)),
        "epsilon": chooser.choice((1e-12, 1e-11)),  # PyTorch's and Paddle's
        "reduction": chooser.choice(REDUCTIONS),
    }
    return Sample((x, np.where(target[:, None] > 0, -other, other), target), attributes)


add_loss("cosine_embedding_loss", _cosine_loss, _cosine_pull, _cosine_terms, _cosine_pull_terms, _draw_cosine)


def _distances(anchor: Array, positive: Array, negative: Array) -> Tuple[Array, Array]:
    gaps = (anchor - other + TRIPLET_EPSILON for other in (positive, negative))
    near, far = (np.sqrt((gap**2).sum(axis=1, keepdims=True)) for gap in gaps)
    return near, far


TRIPLET_EPSILON = 2.0**-20
"""Added to every difference, near the 1e-6 of the frameworks."""


def _triplet_loss(anchor: Array, positive: Array, negative: Array, *, margin: float = 1.0) -> Array:
    """How much less than ``margin`` the negative is farther from the anchor than the positive."""
    near, far = _distances(anchor, positive, negative)
    return np.maximum(near - far + margin, 0.0)[:, 0]


def _triplet_pull(
    g: Array, anchor: Array, positive: Array, negative: Array, *, margin: float = 1.0
) -> Sequence[Optional[Array]]:
    near, far = _distances(anchor, positive, negative)
    inner = g[:, None] * (near - far + margin > 0)
    to_near = inner * (anchor - positive + TRIPLET_EPSILON) / near
    to_far = inner * (anchor - negative + TRIPLET_EPSILON) / far
    return to_near - to_far, -to_near, to_far


def _triplet_terms(anchor: Array, positive: Array, negative: Array, *, margin: float = 1.0) -> Sequence[Term]:
    near, far = (distance[:, 0] for distance in _distances(anchor, positive, negative))
    return [
        Term(near + far, length=anchor.shape[1] + 1, where="accumulate"),
        Term(near + far + margin, ulps=ULPS["sqrt"] + 1.5),
    ]


def _triplet_pull_terms(
    g: Array, anchor: Array, positive: Array, negative: Array, *, margin: float = 1.0
) -> Sequence[Sequence[Term]]:
    near, far = _distances(anchor, positive, negative)
    inner = np.abs(g[:, None]) * (near - far + margin > 0)
    to_near, to_far = inner * np.abs(anchor - positive) / near, inner * np.abs(anchor - negative) / far
    return [
        [
            Term(size + inner * TRIPLET_EPSILON, ulps=ULPS["sqrt"] + ULPS["divide"] + 2),
            Term(size + inner * TRIPLET_EPSILON, length=anchor.shape[1] + 1, where="accumulate"),
        ]
        for size in (to_near + to_far, to_near, to_far)
    ]


def _draw_triplet(chooser: Chooser) -> Sample:
    shape = (chooser.integer(1, 5), chooser.integer(2, 6))
    anchor = chooser.array(shape)
    inputs = (anchor, *(anchor + chooser.array(shape, avoid=(0.0,)) for _ in range(2)))
    near, far = _distances(*inputs)
    kinked = np.abs(near - far + 1.0) < 0.125  # the sum is moved off its kink by widening the larger distance
    negative = np.where(kinked, inputs[0] + 1.5 * (inputs[2] - inputs[0]), inputs[2])
    return Sample((*inputs[:2], negative), {"margin": 1.0, "reduction": chooser.choice(REDUCTIONS)})


add_loss("triplet_margin_loss", _triplet_loss, _triplet_pull, _triplet_terms, _triplet_pull_terms, _draw_triplet)


def _short(x: Array, target: Array, margin: float) -> Tuple[Array, Array]:
    """How far every class comes within ``margin`` of the target's score, and which class is the target."""
    hit = target[:, None] == np.arange(x.shape[1])
    own = x[hit][:, None]
    return np.where(hit, 0.0, np.maximum(margin - own + x, 0.0)), hit


def _multi_margin(x: Array, target: Array, *, margin: float = 1.0, p: int = 1) -> Array:
    """The mean over classes of the margin's violations, to the power ``p`` (1 or 2)."""
    return (_short(x, target, margin)[0] ** p).mean(axis=1)


def _multi_margin_pull(
    g: Array, x: Array, target: Array, *, margin: float = 1.0, p: int = 1
) -> Sequence[Optional[Array]]:
    short, hit = _short(x, target, margin)
    slope = g[:, None] * p * short ** (p - 1) * (short > 0) / x.shape[1]
    return slope - hit * slope.sum(axis=1, keepdims=True), None


def _multi_margin_sizes(x: Array, target: Array, margin: float) -> Array:
    """The magnitudes of margin - own + x, where it counts."""
    short, hit = _short(x, target, margin)
    return np.where(short > 0, margin + np.abs(x[hit])[:, None] + np.abs(x), 0.0)


def _multi_margin_terms(x: Array, target: Array, *, margin: float = 1.0, p: int = 1) -> Sequence[Term]:
    size = _multi_margin_sizes(x, target, margin) * p * _short(x, target, margin)[0] ** (p - 1)
    # A library may sum over all classes and then take the target's own margin off.
    value = _multi_margin(x, target, margin=margin, p=p) + margin**p / x.shape[1]
    return [Term(size.mean(axis=1), ulps=2.0), Term(value, length=x.shape[1] + 2, where="accumulate")]


def _multi_margin_pull_terms(
    g: Array, x: Array, target: Array, *, margin: float = 1.0, p: int = 1
) -> Sequence[Sequence[Term]]:
    short, hit = _short(x, target, margin)
    sizes = _multi_margin_sizes(x, target, margin) if p == 2 else 1.0 * (short > 0)
    slope = np.abs(g[:, None]) * p * sizes / x.shape[1]
    summed = slope + hit * slope.sum(axis=1, keepdims=True)
    return [[Term(summed, ulps=ULPS["divide"] + 1.5), Term(summed, length=x.shape[1], where="accumulate")], []]


def _draw_multi_margin(chooser: Chooser) -> Sample:
    batch, classes = chooser.integer(1, 5), chooser.integer(2, 6)
    x = np.floor(chooser.array((batch, classes), -4.0, 4.0)) * 0.75 + chooser.array((batch, 1), 0.0, 0.25)
    attributes = {"margin": chooser.choice((1.0, 0.5)), "p": chooser.choice((1, 2))}
    target = chooser.integers((batch,), 0, classes - 1)
    return Sample((x, target), {**attributes, "reduction": chooser.choice(REDUCTIONS)})


add_loss(
    "multi_margin_loss",
    _multi_margin,
    _multi_margin_pull,
    _multi_margin_terms,
    _multi_margin_pull_terms,
    _draw_multi_margin,
)


def _multilabel(x: Array, target: Array) -> Array:
    """The mean over classes of the binary cross entropy of logits."""
    return (softplus(x) - x * target).mean(axis=1)


def _multilabel_pull(g: Array, x: Array, target: Array) -> Sequence[Optional[Array]]:
    return g[:, None] * (sigmoid(x) - target) / x.shape[1], None


def _multilabel_terms(x: Array, target: Array) -> Sequence[Term]:
    size = (np.maximum(softplus(np.abs(x)), 1.0) + np.abs(x)).mean(axis=1)
    return [Term(size, ulps=ULPS["exp"] + ULPS["log"] + 1), Term(size, length=x.shape[1] + 1, where="accumulate")]


def _multilabel_pull_terms(g: Array, x: Array, target: Array) -> Sequence[Sequence[Term]]:
    size = np.abs(g[:, None]) * (1.0 + target) / x.shape[1]
    return [[Term(size, ulps=ULPS["exp"] + 2 * ULPS["divide"] + 1)], []]


def _draw_multilabel(chooser: Chooser) -> Sample:
    shape = (chooser.integer(1, 5), chooser.integer(1, 6))
    target = chooser.integers(shape, 0, 1).astype(np.float64)
    return Sample((chooser.array(shape, -4.0, 4.0), target), {"reduction": chooser.choice(REDUCTIONS)})


add_loss(
    "multilabel_soft_margin_loss",
    _multilabel,
    _multilabel_pull,
    _multilabel_terms,
    _multilabel_pull_terms,
    _draw_multilabel,
)
