"""Dropout: given its mask a product, and over all masks a distribution.

``mode`` follows Paddle's names. "upscale_in_train" (also torch and TensorFlow) divides by the keep rate when training
and is the identity in inference; "downscale_in_infer" keeps values as they are when training and multiplies by the
keep rate in inference. A mask holds 1 where an element is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List

import numpy as np

from ipu_conformance.oracle.convergence.distributions import binomial_two_sided
from ipu_conformance.oracle.op import OPS, Array, Op, OracleError, Term
from ipu_conformance.oracle.sample import Chooser, Sample
from ipu_conformance.oracle.tolerance.ops import ULPS

MODES = ("upscale_in_train", "downscale_in_infer")


def _factor(mask: Array, rate: float, mode: str, training: bool) -> Array:
    if mode not in MODES:
        raise OracleError(f"dropout mode {mode!r} is unknown; use one of {', '.join(MODES)}")
    if not 0.0 <= rate < 1.0:
        raise OracleError(f"the dropout rate is {rate}; it must be at least 0 and less than 1")
    if not training:
        return np.full(mask.shape, 1.0 - rate if mode == "downscale_in_infer" else 1.0)
    return mask / (1.0 - rate) if mode == "upscale_in_train" else mask.astype(float)


def _dropout(x: Array, mask: Array, *, rate: float, mode: str = "upscale_in_train", training: bool = True) -> Array:
    return x * _factor(mask, rate, mode, training)


def _vjp(cotangent: Array, x: Array, mask: Array, **attributes: Any) -> List[Any]:
    return [_dropout(cotangent, mask, **attributes), None]


def _error(
    y: Array, x: Array, mask: Array, *, mode: str = MODES[0], training: bool = True, **rest: Any
) -> List[List[Term]]:
    scales = training == (mode == "upscale_in_train")
    return [[Term(np.abs(y), ulps=ULPS["divide"] + 1)] if scales else []]


def _vjp_error(gradients: List[Any], cotangent: Array, x: Array, mask: Array, **attributes: Any) -> List[List[Term]]:
    return [*_error(gradients[0], x, mask, **attributes), []]


def _draw(chooser: Chooser) -> Sample:
    shape = chooser.shape(1, 3, 6)
    attributes: Dict[str, Any] = {
        "rate": chooser.choice([0.5, 0.1, 0.3, 0.0]),
        "mode": chooser.choice(MODES),
        "training": chooser.boolean(),
    }
    return Sample((chooser.array(shape, avoid=[0.0]), chooser.integers(shape, 0, 1).astype(bool)), attributes)


OPS.add(Op("dropout", "dropout", _dropout, _error, _draw, _vjp, _vjp_error))


# The distribution. Every fact below is a count of independent trials if masks are right, so that its probability is
# that of a binomial distribution, without approximation.


@dataclass(frozen=True)
class MaskFact:
    """A count seen in masks, what it should be about, and how probable so large a difference is for right masks."""

    what: str
    count: int
    trials: int
    probability_each: float

    @property
    def expected(self) -> float:
        """The mean of the count."""
        return self.trials * self.probability_each

    @property
    def p_value(self) -> float:
        """The probability of a count at least so far out, on either side."""
        if self.probability_each in (0.0, 1.0):
            return float(self.count == self.expected)
        return binomial_two_sided(self.count, self.trials, self.probability_each)


def mask_of(x: Array, y: Array) -> Array:
    """The elements that dropout kept, from its input, which must have no zeros, and its output."""
    if not np.all(x):
        raise OracleError("a mask cannot be read from an input with zeros; feed dropout with non-zero values")
    return np.asarray(y != 0)


def rate_fact(mask: Array, rate: float) -> MaskFact:
    """The number of dropped elements, each dropped with probability ``rate``."""
    return MaskFact("dropped", int(np.size(mask) - np.count_nonzero(mask)), int(np.size(mask)), rate)


def agreement_fact(a: Array, b: Array, rate: float) -> MaskFact:
    """The number of elements that agree in two masks, which are independent between replicas, steps and seeds."""
    if np.shape(a) != np.shape(b):
        raise OracleError(f"masks of shapes {np.shape(a)} and {np.shape(b)} cannot be compared; take equal shapes")
    agreeing = int(np.count_nonzero(np.asarray(a, bool) == np.asarray(b, bool)))
    return MaskFact("agreeing", agreeing, int(np.size(a)), _agreement(rate))


def neighbour_fact(mask: Array, rate: float, lag: int = 1) -> MaskFact:
    """The number of elements ``lag`` apart that agree, in pairs that share no element."""
    flat = np.asarray(mask, bool).ravel()
    blocks = flat[: flat.size // (2 * lag) * 2 * lag].reshape(-1, 2, lag)
    agreeing = int(np.count_nonzero(blocks[:, 0] == blocks[:, 1]))
    return MaskFact(f"agreeing at distance {lag}", agreeing, blocks.shape[0] * lag, _agreement(rate))


def _agreement(rate: float) -> float:
    return rate**2 + (1.0 - rate) ** 2
