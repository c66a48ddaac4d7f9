"""Ways for the device's random numbers to be wrong: what they depend on, and what dropout makes of them."""

from __future__ import annotations

from typing import Any, Callable, Dict

from ipu_conformance.emulator.faults.catalogue import Fault, always, argument, patch, register

SEED = "poptorch.run.random_state:slot_seed"
DROPOUT = "poptorch.run.random_state:dropout"


@patch("masks-never-repeat", "numerics", SEED, "no seed gives the same random numbers twice", remembers=True)
def _never_again(memory: Dict[str, int], original: Callable[..., int], seed: int, *parts: int) -> int:
    memory["draws"] = memory.get("draws", 0) + 1
    return original(seed + memory["draws"], *parts)


@patch("dropout-not-scaled", "numerics", DROPOUT, "what dropout keeps is not scaled up")
def _as_it_was(original: Callable[..., Any], value: Any, p: float, train: bool, ordinal: int) -> Any:
    dropped = original(value, p, train, ordinal)
    return dropped * (1.0 - p) if train else dropped


@patch("random-numbers-reach-their-bound", "numerics", "poptorch.run.random_state:Seeded.__call__",
       "random_ draws the number that it should stay below")  # fmt: skip
def _up_to(original: Callable[..., Any], seeded: Any, *args: Any, **kwargs: Any) -> Any:
    if "random" in str(seeded.target) and len(args) > 2:
        args = (*args[:2], args[2] + 1, *args[3:])
    return original(seeded, *args, **kwargs)


for _fault in (
    Fault("seed-ignored", "numerics", SEED, "every seed gives the same random numbers",
          argument("seed", always(0))),
    Fault("masks-same-in-every-run", "numerics", SEED, "every call draws what the first one drew",
          argument("run", always(0))),
    Fault("masks-same-on-every-replica", "numerics", SEED, "all replicas draw the same",
          argument("replica", always(0))),
    Fault("masks-same-for-every-micro-batch", "numerics", SEED, "all micro-batches of a call draw the same",
          argument("micro_batch", always(0))),
    Fault("masks-repeat-every-second-run", "numerics", SEED, "every call draws what the last but one drew",
          argument("run", lambda run: run % 2)),
    Fault("masks-repeat-on-the-fifth-replica", "numerics", SEED, "replicas draw what those four before them draw",
          argument("replica", lambda replica: replica % 4)),
    Fault("masks-same-in-every-dropout", "numerics", DROPOUT, "all dropouts of a net draw the same",
          argument("ordinal", always(0))),
    Fault("masks-repeat-after-eight-runs", "numerics", SEED, "the ninth call draws what the first one drew",
          argument("run", lambda run: run % 8)),
    Fault("masks-same-from-the-fourth-replica-on", "numerics", SEED, "the fourth replica draws what the first one does",
          argument("replica", lambda replica: replica % 3)),
    Fault("seed-of-sixteen-bits", "numerics", SEED, "seeds count modulo 2^16",
          argument("seed", lambda seed: seed % 2**16)),
    Fault("masks-same-from-the-second-layer-on", "numerics", DROPOUT, "the third dropout drops as the second one does",
          argument("ordinal", lambda ordinal: min(ordinal, 1))),
    Fault("dropout-in-sixteenths", "numerics", DROPOUT, "dropout rounds its rate to sixteenths",
          argument("p", lambda p: round(p * 16) / 16)),
    Fault("random-operations-draw-the-same", "numerics", "poptorch.run.random_state:Seeded.__init__",
          "all random operations of a model but dropout draw the same", argument("ordinal", always(0))),
    Fault("dropout-keeps-more", "numerics", DROPOUT, "dropout drops a tenth less than it should",
          argument("p", lambda p: p * 0.9)),
):  # fmt: skip
    register(_fault, __name__)
