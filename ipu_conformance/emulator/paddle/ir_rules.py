"""The decisions of the passes, of lowering and of dumps, each of which a fault can turn round."""

from __future__ import annotations

from typing import Any, TypeVar

from ipu_conformance.emulator import faults

POINT = "paddle.ir"

Value = TypeVar("Value")


def decide(rule: str, value: Value, **context: Any) -> Value:
    """What the compiler does where ``value`` is right: the same unless a fault of that rule is on."""
    if not faults.active:
        return value
    decided: Value = faults.apply(POINT, value, rule=rule, **context)
    return decided
