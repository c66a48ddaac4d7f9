"""Ways for the device's random numbers to be wrong: what they depend on, and what dropout makes of them."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.faults.catalogue import Fault, Wrong

catalogue.register_point("draw.seed", "value: what a slot's seed is made of: (seed, run, replica, micro-batch)")
catalogue.register_point("draw.dropout", "value: the share that is dropped and the factor of what is kept")


def _always(place: int) -> Wrong:
    """One of the numbers that make a slot's seed never changes."""

    def wrong(value: Tuple[int, ...], **context: Any) -> Tuple[int, ...]:
        return (*value[:place], 0, *value[place + 1 :])

    return wrong


def _never_again(value: Tuple[int, ...], *, memory: Dict[Any, Any], **context: Any) -> Tuple[int, ...]:
    memory["draws"] = memory.get("draws", 0) + 1
    return (value[0] + memory["draws"], *value[1:])


for _fault in (
    Fault("seed-ignored", "numerics", "draw.seed", "every seed gives the same random numbers", _always(0)),
    Fault("masks-never-repeat", "numerics", "draw.seed", "no seed gives the same random numbers twice", _never_again),
    Fault("masks-same-in-every-run", "numerics", "draw.seed", "every call draws what the first one drew", _always(1)),
    Fault("masks-same-on-every-replica", "numerics", "draw.seed", "all replicas draw the same", _always(2)),
    Fault("masks-same-for-every-micro-batch", "numerics", "draw.seed", "all micro-batches of a call draw the same",
          _always(3)),
    Fault("dropout-not-scaled", "numerics", "draw.dropout", "what dropout keeps is not scaled up",
          lambda value, **context: (value[0], 1.0)),
    Fault("dropout-keeps-more", "numerics", "draw.dropout", "dropout drops a tenth less than it should",
          lambda value, **context: (value[0] * 0.9, value[1])),
):  # fmt: skip
    catalogue.register(_fault, __name__)
