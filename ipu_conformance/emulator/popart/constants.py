"""The numbers of an update as PopART puts them together: compound scalars that a dump shows as constants.

Gradients reach an update multiplied by the loss scaling and added up over micro-batches and replicas. Whatever a mean
or the loss scaling takes back is part of a constant, for SGD, or of an op that scales the gradient.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field, fields
from typing import Any, Dict, Mapping

ADD, DAMPENED_ADD, DAMPENED_ADD_SQUARE, DECAY_ADD = range(4)
MOVING_AVERAGE, MOVING_AVERAGE_SQUARE, INFINITY, MEAN = range(5, 9)
"""PopART's types of accumulation, by their numbers."""

ADAM, ADAM_NO_BIAS, ADAMAX, LAMB, LAMB_NO_BIAS = range(5)
"""PopART's modes of Adam, by their numbers."""


@dataclass(frozen=True)
class Numbers:
    """The settings of an optimizer for one weight."""

    rate: float
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    beta1: float = 0.0
    beta2: float = 0.0
    epsilon: float = 0.0
    alpha: float = 0.0
    corrected: bool = True
    """Whether Adam's moments are corrected for their start."""
    inside: bool = False
    """Whether RMSprop's epsilon is under the root."""
    max_weight_norm: float = math.inf

    def single(self) -> Numbers:
        """The same settings in 32 bits, in which PopART holds them."""
        return Numbers(**{each.name: _single(getattr(self, each.name)) for each in fields(self)})


@dataclass(frozen=True)
class Compound:
    """The constants of an update's ops by their short names, and what is done to the gradient before them."""

    words: Mapping[str, Any] = field(default_factory=dict)
    unscale: float = 1.0
    """What the gradient is multiplied by."""
    joined_decay: float = 0.0
    """How much of the weight is added to the gradient."""


def compound(rule: str, numbers: Numbers, scale: float, replicas: int = 1) -> Compound:
    """The constants of a rule for gradients that are ``scale`` times too large.

    ``replicas`` are those that add up the velocity itself, where it is the accumulator too.
    """
    numbers = numbers.single()
    rate, decay, kept = numbers.rate, numbers.weight_decay, 1.0 - numbers.dampening
    if rule.startswith("sgd"):
        scalars = {
            "slr0": rate / scale,
            "wdsf0": 1.0 - rate * decay,
            "smm1": numbers.momentum / replicas,
            "swd1": kept * decay / replicas,
            "dpsf1": kept / scale,
            "slr1": rate,
            "ils": 1.0 / scale,
            "wd1": decay,
            "ngsf": 1.0,
            "mm": numbers.momentum,
        }
        return Compound({name: _single(value) for name, value in scalars.items()})
    words: Dict[str, Any] = {
        "lr": rate,
        "beta1": numbers.beta1,
        "beta2": numbers.beta2,
        "eps": numbers.epsilon,
        "alpha": numbers.alpha,
        "momentum": numbers.momentum,
        "tf": int(numbers.inside),
        "second": INFINITY if rule == "adamax" else MOVING_AVERAGE_SQUARE,
        "square": DAMPENED_ADD_SQUARE if rule == "adagrad" else MOVING_AVERAGE_SQUARE,
        "share": 1.0 if rule == "adagrad" else numbers.alpha,
    }
    modes = {"adamax": ADAMAX, "lamb": LAMB if numbers.corrected else LAMB_NO_BIAS}
    words["mode"] = modes.get(rule, ADAM if numbers.corrected else ADAM_NO_BIAS)
    apart = rule in ("adamw", "lamb")
    words["wd"] = decay if apart else 0.0
    if numbers.max_weight_norm != math.inf:
        words["mwn"] = numbers.max_weight_norm
    return Compound(words, _single(1.0 / scale), 0.0 if apart else decay)


def _single(value: Any) -> Any:
    """A number in 32 bits; a truth value as it is."""
    return value if isinstance(value, bool) else struct.unpack("<f", struct.pack("<f", value))[0]
