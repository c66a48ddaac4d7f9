"""What the host's side of the emulated Paddle decides, each of which a fault can turn round.

The rules are those of precision, of dynamic-to-static, of inference, of the model runtime and of custom ops.
"""

from __future__ import annotations

from typing import Any, TypeVar

from ipu_conformance.emulator import faults

POINT = "paddle.host"

Value = TypeVar("Value")


def decide(rule: str, value: Value, **context: Any) -> Value:
    """What happens where ``value`` is right: the same unless a fault of that rule is on."""
    if not faults.active:
        return value
    decided: Value = faults.apply(POINT, value, rule=rule, **context)
    return decided
