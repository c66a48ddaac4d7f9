"""The decisions that rules of Keras models make, each of which a fault can turn round."""

from __future__ import annotations

from typing import TypeVar

from ipu_conformance.emulator import faults

POINT = "keras.decision"
faults.register_point(POINT, "value: what a rule of Keras models decides; rule: the name of the rule")

Value = TypeVar("Value")


def decide(rule: str, value: Value) -> Value:
    """What the device makes of a rule: the value, unless a fault of that rule is on."""
    if not faults.active:
        return value
    decided: Value = faults.apply(POINT, value, rule=rule)
    return decided
