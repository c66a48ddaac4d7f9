"""What an estimator decides, each of which a fault can turn round."""

from __future__ import annotations

from typing import Any, TypeVar

from ipu_conformance.emulator import faults

POINT = "tensorflow.estimator"
faults.register_point(POINT, "value: what is decided; rule: the name of the decision; more by the rule")

Value = TypeVar("Value")


def decide(rule: str, value: Value, **context: Any) -> Value:
    """What the estimator does where ``value`` is right: the same unless a fault of that rule is on."""
    if not faults.active:
        return value
    decided: Value = faults.apply(POINT, value, rule=rule, **context)
    return decided
