"""Ways for wrappers of Keras optimizers, strategies for several processes and buffered data sets to be wrong."""

from __future__ import annotations

from typing import Any, Callable

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.faults import Fault
from ipu_conformance.emulator.tensorflow import decisions
from ipu_conformance.emulator.tensorflow.ops import _decisions


def _at(wanted: str, answer: Any) -> Callable[..., Any]:
    """Another answer at one decision, and the right one at all others."""
    return lambda value, rule, **context: answer if rule == wanted else value


for _name, _point, _rule, _area, _what, _answer in (
    ("loss-not-scaled", _decisions.POINT, "loss-scaled", "update", "a loss is not multiplied by its factor", 1.0),
    ("gradients-stay-scaled", _decisions.POINT, "unscaled", "update", "scaled gradients are applied", 1.0),
    ("buffers-not-whole", _decisions.POINT, "whole-buffers", "streams", "a group that is not full is kept", False),
    ("strategy-never-reduces", decisions.POINT, "strategy-reduces", "reduce",
     "replicas of several processes keep their own gradients", False),
):  # fmt: skip
    faults.register(Fault(_name, _area, _point, _what, _at(_rule, _answer)))
