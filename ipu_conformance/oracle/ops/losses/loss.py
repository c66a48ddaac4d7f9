"""Losses between values and targets, and the reduction that every loss shares.

A loss is a function without reduction, with its gradient and its error; ``add_loss`` adds the attribute ``reduction``:
"none", "sum", "mean" (over all values of the loss, or over its total weight) and "batchmean" (the sum over the size of
the first axis). Only predictions are differentiated: targets and weights are constants.
"""

from __future__ import annotations

from typing import Any, Callable, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from ipu_conformance.oracle.op import OPS, Array, Op, OracleError, Term
from ipu_conformance.oracle.ops.arithmetic.activation import sigmoid, softplus
from ipu_conformance.oracle.sample import Chooser, Sample
from ipu_conformance.oracle.tolerance.ops import ULPS

REDUCTIONS = ("mean", "sum", "none")
Function = Callable[..., Any]
Slopes = Union[Array, Tuple[Array, ...]]


def add_loss(
    name: str,
    values: Callable[..., Array],
    pull: Callable[..., Sequence[Optional[Array]]],
    terms: Callable[..., Sequence[Term]],
    pull_terms: Callable[..., Sequence[Sequence[Term]]],
    draw: Callable[[Chooser], Sample],
    total: Optional[Callable[..., float]] = None,
) -> None:
    """Add a loss to the table.

    ``values(*inputs)`` is the loss without reduction and ``pull(g, *inputs)`` its gradients; ``terms(*inputs)`` and
    ``pull_terms(g, *inputs)`` list their errors. ``total(*inputs)`` is what "mean" divides by, the count by default.
    """

    def divisor(reduction: str, loss: Array, inputs: Sequence[Array], attributes: Mapping[str, Any]) -> float:
        if reduction == "mean":
            return float(loss.size) if total is None else total(*inputs, **attributes)
        if reduction == "batchmean":
            return float(len(inputs[0]))
        if reduction in ("sum", "none"):
            return 1.0
        raise OracleError(f"reduction {reduction!r} is unknown; use {', '.join(REDUCTIONS)} or batchmean")

    def forward(*inputs: Array, reduction: str = "mean", **attributes: Any) -> Array:
        loss = values(*inputs, **attributes)
        by = divisor(reduction, loss, inputs, attributes)
        return loss if reduction == "none" else np.asarray(loss.sum() / by)

    def error(y: Array, *inputs: Array, reduction: str = "mean", **attributes: Any) -> List[List[Term]]:
        each = terms(*inputs, **attributes)
        if reduction == "none":
            return [list(each)]
        loss = values(*inputs, **attributes)
        by = divisor(reduction, loss, inputs, attributes)
        summed = [Term(np.sum(term.magnitude) / by, term.length, term.ulps, term.where) for term in each]
        return [[*summed, Term(np.abs(loss).sum() / by, length=loss.size + 1, where="accumulate")]]

    def weights(g: Array, inputs: Sequence[Array], reduction: str, attributes: Mapping[str, Any]) -> Array:
        loss = values(*inputs, **attributes)
        return np.broadcast_to(g / divisor(reduction, loss, inputs, attributes), loss.shape)

    def vjp(g: Array, *inputs: Array, reduction: str = "mean", **attributes: Any) -> Sequence[Optional[Array]]:
        return pull(weights(g, inputs, reduction, attributes), *inputs, **attributes)

    def vjp_error(
        gradients: Any, g: Array, *inputs: Array, reduction: str = "mean", **attributes: Any
    ) -> List[List[Term]]:
        each = pull_terms(weights(g, inputs, reduction, attributes), *inputs, **attributes)
        rounded = [[term for term in its if term.ulps] for its in each]
        if reduction in ("none", "sum"):
            return rounded
        # The division by the total is one rounding more, and scales all that follows.
        shared = ([Term(term.magnitude, ulps=ULPS["divide"]) for term in its[:1]] for its in each)
        return [its + more for its, more in zip(rounded, shared)]

    OPS.add(Op(name, "loss", forward, error, draw, vjp, vjp_error))


def _pointwise(
    name: str,
    f: Function,
    slope: Function,
    draw: Callable[[Chooser, Mapping[str, Any]], Tuple[Array, ...]],
    *,
    size: Optional[Function] = None,
    slope_size: Optional[Function] = None,
    ulps: float,
    slope_ulps: float = 0.5,
    attributes: Optional[Mapping[str, Sequence[Any]]] = None,
    reductions: Sequence[str] = REDUCTIONS,
) -> None:
    """Add an element-wise loss; ``slope`` holds the derivatives by the first input, or by as many as it returns.

    ``slope_ulps`` of 0 says that the slopes are 1, 0 and -1, which select and do not round.
    """

    def slopes(value: Slopes) -> Tuple[Array, ...]:
        return value if isinstance(value, tuple) else (value,)

    def pull(g: Array, *inputs: Array, **values: Any) -> Sequence[Optional[Array]]:
        gradients = [g * each for each in slopes(slope(*inputs, **values))]
        return [*gradients, *([None] * (len(inputs) - len(gradients)))]

    def terms(*inputs: Array, **values: Any) -> Sequence[Term]:
        return [Term(np.abs((size or f)(*inputs, **values)), ulps=ulps)]

    def pull_terms(g: Array, *inputs: Array, **values: Any) -> Sequence[Sequence[Term]]:
        sizes = slopes((slope_size or slope)(*inputs, **values))
        of_inputs = [[Term(np.abs(g * each), ulps=slope_ulps + 0.5 if slope_ulps else 0.0)] for each in sizes]
        return [*of_inputs, *([[]] * (len(inputs) - len(of_inputs)))]

    def drawn(chooser: Chooser) -> Sample:
        values = {key: chooser.choice(options) for key, options in (attributes or {}).items()}
        return Sample(draw(chooser, values), {**values, "reduction": chooser.choice(reductions)})

    add_loss(name, f, pull, terms, pull_terms, drawn)


def _apart(chooser: Chooser, values: Mapping[str, Any]) -> Tuple[Array, ...]:
    """Predictions and targets whose difference stays away from 0 and from the borders of the attributes."""
    shape = chooser.shape(1, 3, 5)
    target = chooser.array(shape)
    borders = [sign * border for border in (values.get("beta", 0.0), values.get("delta", 0.0)) for sign in (-1, 1)]
    return target + chooser.array(shape, -3.0, 3.0, avoid=(0.0, *borders)), target


def _probabilities(chooser: Chooser, values: Mapping[str, Any]) -> Tuple[Array, ...]:
    shape = chooser.shape(1, 3, 5)
    return chooser.array(shape, 0.05, 0.95), chooser.array(shape, 0.0, 1.0)


def _log_probabilities(chooser: Chooser, values: Mapping[str, Any]) -> Tuple[Array, ...]:
    shape = chooser.shape(1, 3, 5)
    target = chooser.array(shape, 0.05, 0.95)
    return chooser.array(shape, -3.0, -0.1), np.log(target) if values["log_target"] else target


def _logits(chooser: Chooser, values: Mapping[str, Any]) -> Tuple[Array, ...]:
    shape = chooser.shape(1, 3, 5)
    return chooser.array(shape, -4.0, 4.0, avoid=(0.0,)), chooser.array(shape, 0.0, 1.0)


def _weighted_logits(chooser: Chooser, values: Mapping[str, Any]) -> Tuple[Array, ...]:
    """Targets are 0 or 1, between which the frameworks weigh differently."""
    x, _ = _logits(chooser, values)
    return x, chooser.integers(x.shape, 0, 1).astype(np.float64), chooser.array(x.shape[-1:], 0.5, 3.0)


def _signs(chooser: Chooser, shape: Sequence[int]) -> Array:
    return 2.0 * chooser.integers(shape, 0, 1) - 1.0


def _signed(chooser: Chooser, values: Mapping[str, Any]) -> Tuple[Array, ...]:
    shape = chooser.shape(1, 3, 5)
    kinks = (-1.0, 1.0, values.get("margin", 1.0))
    return chooser.array(shape, -3.0, 3.0, avoid=kinks), _signs(chooser, shape)


def _ranked(chooser: Chooser, values: Mapping[str, Any]) -> Tuple[Array, ...]:
    shape = chooser.shape(1, 2, 5)
    second, margin = chooser.array(shape), values["margin"]
    return second + chooser.array(shape, avoid=(-margin, margin)), second, _signs(chooser, shape)


def _pairs(chooser: Chooser, values: Mapping[str, Any]) -> Tuple[Array, ...]:
    shape = chooser.shape(1, 2, 5)
    return chooser.array(shape), chooser.array(shape), chooser.integers(shape, 0, 2) / 2


def _counts(chooser: Chooser, values: Mapping[str, Any]) -> Tuple[Array, ...]:
    shape = chooser.shape(1, 3, 5)
    return chooser.array(shape, 0.25, 3.0), chooser.integers(shape, 0, 4).astype(np.float64)


def _with_variance(chooser: Chooser, values: Mapping[str, Any]) -> Tuple[Array, ...]:
    x, target = _apart(chooser, values)
    return x, target, chooser.array(x.shape, 0.25, 3.0)


_SOFTPLUS = ULPS["exp"] + ULPS["log"] + 1.0
_SIGMOID = ULPS["exp"] + ULPS["divide"] + 0.5

_pointwise("mse_loss", lambda x, t: (x - t) ** 2, lambda x, t: 2 * (x - t), _apart, ulps=1.5, slope_ulps=0.5)
_pointwise("l1_loss", lambda x, t: np.abs(x - t), lambda x, t: np.sign(x - t), _apart, ulps=0.5, slope_ulps=0)
_pointwise(
    "smooth_l1_loss",
    lambda x, t, beta: np.where(np.abs(x - t) < beta, (x - t) ** 2 / (2 * beta), np.abs(x - t) - beta / 2),
    lambda x, t, beta: np.clip((x - t) / beta, -1.0, 1.0),
    _apart,
    size=lambda x, t, beta: np.where(np.abs(x - t) < beta, (x - t) ** 2 / (2 * beta), np.abs(x - t) + beta / 2),
    ulps=ULPS["divide"] + 1.5,
    slope_ulps=ULPS["divide"] + 0.5,
    attributes={"beta": (1.0, 0.5)},
)
_pointwise(
    "huber_loss",
    lambda x, t, delta: np.where(np.abs(x - t) < delta, (x - t) ** 2 / 2, delta * (np.abs(x - t) - delta / 2)),
    lambda x, t, delta: np.clip(x - t, -delta, delta),
    _apart,
    size=lambda x, t, delta: np.where(np.abs(x - t) < delta, (x - t) ** 2 / 2, delta * (np.abs(x - t) + delta / 2)),
    ulps=2.0,
    slope_ulps=1.0,
    attributes={"delta": (1.0, 0.5)},
)
_pointwise(
    "log_cosh_loss",
    lambda x, t: softplus(2 * np.abs(x - t)) - np.abs(x - t) - np.log(2.0),
    lambda x, t: np.tanh(x - t),
    _apart,
    size=lambda x, t: 2 * np.abs(x - t) + 1.0,
    slope_size=lambda x, t: np.ones_like(x),
    ulps=_SOFTPLUS + 1,
    slope_ulps=2 * _SIGMOID,
)
_pointwise(
    "bce_loss",
    lambda p, t: -(t * np.log(p) + (1 - t) * np.log1p(-p)),
    lambda p, t: (p - t) / (p * (1 - p)),
    _probabilities,
    size=lambda p, t: t * np.abs(np.log(p)) + (1 - t) * (1.0 + np.abs(np.log1p(-p))),
    slope_size=lambda p, t: t / p + (1 - t) / (1 - p),
    ulps=ULPS["log"] + 1,
    slope_ulps=ULPS["divide"] + 2,
)
_pointwise(
    "bce_with_logits_loss",
    lambda x, t: softplus(x) - x * t,
    lambda x, t: sigmoid(x) - t,
    _logits,
    size=lambda x, t: np.maximum(softplus(x), 1.0) + np.abs(x * t),
    slope_size=lambda x, t: 1.0 + t,
    ulps=_SOFTPLUS,
    slope_ulps=_SIGMOID + 0.5,
)
_pointwise(
    "weighted_bce_with_logits_loss",  # the weight is that of the positive targets
    lambda x, t, w: w * t * softplus(-x) + (1 - t) * softplus(x),
    lambda x, t, w: (1 - t) * sigmoid(x) - w * t * sigmoid(-x),
    _weighted_logits,
    size=lambda x, t, w: (1 + np.abs(w - 1) * t) * np.maximum(softplus(np.abs(x)), 1.0) + np.abs(x),
    slope_size=lambda x, t, w: 2 + w * t,
    ulps=_SOFTPLUS + 1,
    slope_ulps=_SIGMOID + 2,
)
_pointwise(
    "kl_div_loss",  # predictions are logarithms of probabilities
    lambda x, t, log_target: np.exp(t) * (t - x) if log_target else t * (np.log(t) - x),
    lambda x, t, log_target: -np.exp(t) if log_target else -t,
    _log_probabilities,
    size=lambda x, t, log_target: (
        np.exp(t) * (np.abs(t) + np.abs(x)) if log_target else t * (np.abs(np.log(t)) + np.abs(x))
    ),
    ulps=ULPS["exp"] + 1.5,
    slope_ulps=ULPS["exp"],
    attributes={"log_target": (False, True)},
    reductions=(*REDUCTIONS, "batchmean"),
)
_pointwise(
    "soft_margin_loss",
    lambda x, t: softplus(-t * x),
    lambda x, t: -t * sigmoid(-t * x),
    _signed,
    size=lambda x, t: np.maximum(softplus(-t * x), 1.0),
    slope_size=lambda x, t: np.ones_like(x),
    ulps=_SOFTPLUS,
    slope_ulps=_SIGMOID + 1,
)
_pointwise(
    "hinge_loss",
    lambda x, t: np.maximum(1.0 - t * x, 0.0),
    lambda x, t: -t * (t * x < 1.0),
    _signed,
    size=lambda x, t: (1.0 + np.abs(x)) * (t * x < 1.0),
    ulps=0.5,
    slope_ulps=0,
)
_pointwise(
    "squared_hinge_loss",
    lambda x, t: np.maximum(1.0 - t * x, 0.0) ** 2,
    lambda x, t: -2 * t * np.maximum(1.0 - t * x, 0.0),
    _signed,
    ulps=1.5,
    slope_ulps=1.0,
)
_pointwise(
    "hinge_embedding_loss",
    lambda x, t, margin: np.where(t > 0, x, np.maximum(margin - x, 0.0)),
    lambda x, t, margin: np.where(t > 0, 1.0, -1.0 * (x < margin)),
    _signed,
    size=lambda x, t, margin: np.abs(x) + margin,
    ulps=0.5,
    slope_ulps=0,
    attributes={"margin": (1.0, 0.5)},
)
_pointwise(
    "margin_ranking_loss",
    lambda x, other, t, margin: np.maximum(margin - t * (x - other), 0.0),
    lambda x, other, t, margin: (
        -t * (t * (x - other) < margin),
        t * (t * (x - other) < margin),
    ),
    _ranked,
    size=lambda x, other, t, margin: margin + np.abs(x - other),
    ulps=1.0,
    slope_ulps=0,
    attributes={"margin": (0.5, 0.0)},
)
_pointwise(
    "rank_loss",  # the target says how much of the pair the first should win
    lambda x, other, t: softplus(x - other) - t * (x - other),
    lambda x, other, t: (sigmoid(x - other) - t, t - sigmoid(x - other)),
    _pairs,
    size=lambda x, other, t: (1.0 + t) * np.abs(x - other) + 1.0,
    slope_size=lambda x, other, t: (1.0 + t + np.abs(x - other), 1.0 + t + np.abs(x - other)),
    ulps=_SOFTPLUS + 0.5,
    slope_ulps=_SIGMOID + 0.5,
)
_pointwise(
    "poisson_nll_loss",
    lambda x, t, log_input: np.exp(x) - t * x if log_input else x - t * np.log(x + 2.0**-27),
    lambda x, t, log_input: np.exp(x) - t if log_input else 1.0 - t / (x + 2.0**-27),
    _counts,
    size=lambda x, t, log_input: np.exp(x) + t * x if log_input else x + t * (1.0 + np.abs(np.log(x))),
    slope_size=lambda x, t, log_input: np.exp(x) + t if log_input else 1.0 + t / x,
    ulps=ULPS["exp"] + 1,
    slope_ulps=ULPS["exp"] + 1,
    attributes={"log_input": (True, False)},
)
_pointwise(
    "gaussian_nll_loss",
    lambda x, t, variance: 0.5 * (np.log(variance) + (x - t) ** 2 / variance),
    lambda x, t, variance: (x - t) / variance,
    _with_variance,
    size=lambda x, t, variance: 0.5 * (np.abs(np.log(variance)) + (x - t) ** 2 / variance),
    ulps=ULPS["log"] + ULPS["divide"],
    slope_ulps=ULPS["divide"] + 1.0,
)
