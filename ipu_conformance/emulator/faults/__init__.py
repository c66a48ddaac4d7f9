"""The seam between the emulator and the ways for it to be wrong.

The emulator knows two things of faults. Where data passes, it goes on with what a point of the seam gives back::

    positions = faults.at("streams.split", positions, replicas=self.replicas)

and what a device must refuse is a row that raises (``faults.refuse``). With no fault on, a point returns its value and
every row refuses. Everything else that can go wrong is a patch in ``faults.catalogue``, which the emulator never
imports.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, TypeVar

from ipu_conformance.emulator.faults.refusals import Refusal, refuse

__all__ = ["POINTS", "Refusal", "at", "refuse", "wake"]

ENVIRONMENT = "IPU_CONFORMANCE_FAULT"
Value = TypeVar("Value")
Change = Callable[..., Any]
"""``change(value, **context)`` gives what the device goes on with."""

POINTS: Dict[str, str] = {
    "plan.slots": "value: structured array of one replica's slots (tick, ipu, stage, micro_batch, kind)",
    "streams.split": "value: array (device iterations, accumulation, replicas, …) of what each slot is fed: positions "
    "in the combined batch, or samples",
    "streams.join": "value: array (device iterations, accumulation, replicas, …) of what each slot gives back: numbers "
    "of slots, or samples",
    "reduce.gradients": "value: list with one gradient (array, or dict of arrays) per replica, about to be summed; "
    "divisor: what the sum is then divided by (accumulation × replicas for a mean, 1 for a sum)",
    "execute.boundary": "value: what one stage hands to the next (array, or dict or tuple of arrays); replica, stage "
    "(of the sender), micro_batch, kind (of the sender's slot)",
    "numerics.round": "value: float16 array; exact: the array that was rounded; stochastic: whether at random",
    "numerics.partials": "value: name of the dtype in which partial sums are held",
    "numerics.narrow": "value: 32-bit array; exact: the array that was narrowed",
    "weights.to_host": "value: dict of arrays on the device; host: the dict of arrays that the host holds",
    "weights.to_device": "value: dict of arrays on the host; device: the dict that the device holds, None at first",
    "ir.graph": "value: ipu_conformance.ir.graph.Graph of the compiled program",
    "paddle.ops": "value: the paddle Program that one kind of slot runs, about to be bound to a scope",
}
"""Every point of the seam, with what ``value`` and the context are there."""

changes: Dict[str, List[Change]] = {}
"""What the faults that are on do, by point; empty when the device is right."""


def at(point: str, value: Value, **context: Any) -> Value:
    """The value that the device goes on with: the same object unless a fault of that point is on."""
    for change in changes.get(point, ()):
        value = change(value, **context)
    return value


def wake(front_end: str) -> None:
    """Turn on, until the process ends, the faults that ``IPU_CONFORMANCE_FAULT`` names."""
    if os.environ.get(ENVIRONMENT):
        from ipu_conformance.emulator.faults import catalogue

        catalogue.activate_from_environment(front_end)
