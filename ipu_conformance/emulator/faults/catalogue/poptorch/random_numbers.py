"""Ways for the device's random numbers to be wrong: what they depend on, and what dropout makes of them."""

from __future__ import annotations

from typing import Any, Callable, Dict

from ipu_conformance.emulator.faults.catalogue import Fault, Wrong, patch, register

SEED = "poptorch.run.random_state:slot_seed"
DROPOUT = "poptorch.run.random_state:dropout"


def _always(place: int) -> Wrong:
    """One of the numbers that make a slot's seed (seed, run, replica, micro-batch) never changes."""
    return lambda original, *parts: original(*parts[:place], 0, *parts[place + 1 :])


@patch("masks-never-repeat", "numerics", SEED, "no seed gives the same random numbers twice", remembers=True)
def _never_again(memory: Dict[str, int], original: Callable[..., int], seed: int, *parts: int) -> int:
    memory["draws"] = memory.get("draws", 0) + 1
    return original(seed + memory["draws"], *parts)


@patch("dropout-not-scaled", "numerics", DROPOUT, "what dropout keeps is not scaled up")
def _as_it_was(original: Callable[..., Any], value: Any, p: float, train: bool, ordinal: int) -> Any:
    dropped = original(value, p, train, ordinal)
    return dropped * (1.0 - p) if train else dropped


for _fault in (
    Fault("seed-ignored", "numerics", SEED, "every seed gives the same random numbers", _always(0)),
    Fault("masks-same-in-every-run", "numerics", SEED, "every call draws what the first one drew", _always(1)),
    Fault("masks-same-on-every-replica", "numerics", SEED, "all replicas draw the same", _always(2)),
    Fault("masks-same-for-every-micro-batch", "numerics", SEED, "all micro-batches of a call draw the same",
          _always(3)),
    Fault("dropout-keeps-more", "numerics", DROPOUT, "dropout drops a tenth less than it should",
          lambda original, value, p, train, ordinal: original(value, p * 0.9, train, ordinal)),
):  # fmt: skip
    register(_fault, __name__)
