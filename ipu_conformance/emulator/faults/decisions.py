"""The decisions of the front ends; a fault can reverse each of them.

A site asks its point: ``decide("weights follow the host", True)`` gives True unless a fault of that rule is on.
"""

from __future__ import annotations

from typing import Any, TypeVar

from ipu_conformance.emulator import faults

Value = TypeVar("Value")


class Decisions:
    """The decisions taken at one hook point, by the name of their rule."""

    def __init__(self, point: str, what: str) -> None:
        self.point = point
        faults.register_point(point, what)

    def __call__(self, rule: str, value: Value, **context: Any) -> Value:
        """What the device does where ``value`` is right: the same unless a fault of that rule is on."""
        if not faults.changes:
            return value
        decided: Value = faults.at(self.point, value, rule=rule, **context)
        return decided


_WHAT = "value: what is decided; rule: the name of the decision; more by the rule"

poptorch_executor = Decisions("poptorch.executor", _WHAT)
paddle_execution = Decisions("paddle.execution", _WHAT)
paddle_host = Decisions("paddle.host", _WHAT)
paddle_ir = Decisions("paddle.ir", _WHAT)
popart_ir = Decisions("popart.ir", _WHAT)
paddle_strategy = Decisions("paddle.strategy", _WHAT)
tensorflow_system = Decisions("tensorflow.system", _WHAT)
tensorflow_estimator = Decisions("tensorflow.estimator", _WHAT)
