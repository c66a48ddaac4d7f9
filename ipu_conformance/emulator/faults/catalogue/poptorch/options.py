"""Ways for options to be wrong: shared by clones, lost, or left at another default."""

from __future__ import annotations

from typing import Any, Callable

from ipu_conformance.emulator.faults.catalogue import Fault, patch, register, result

OPTIONS = "poptorch.options.options:Options"
Original = Callable[..., Any]


@patch("options-clone-stays-frozen", "plan", f"{OPTIONS}.clone", "a clone of frozen options is frozen")
def _deaf(original: Original, options: Any) -> Any:
    copied = original(options)
    if options._is_frozen:
        object.__setattr__(copied, "set", lambda **values: copied)
    return copied


@patch("options-clone-shares-values", "plan", f"{OPTIONS}.clone", "a clone changes together with its original")
def _sharing(original: Original, options: Any) -> Any:
    copied = original(options)
    object.__setattr__(copied, "_values", options._values)
    return copied


@patch("options-period-lost", "plan", "poptorch.options.values:OptionValues.set",
       "the period of an output mode is not stored")  # fmt: skip
def _without_period(original: Original, options: Any, **values: Any) -> Any:
    values.pop("output_return_period", None)
    return original(options, **values)


@patch("options-seed-only-device", "plan", f"{OPTIONS}.randomSeed", "the random seed does not reach torch")
def _torch_left_alone(original: Original, options: Any, random_seed: int) -> Any:
    import torch

    before = torch.get_rng_state()
    original(options, random_seed)
    torch.set_rng_state(before)
    return options


register(
    Fault("options-file-last-line-ignored", "plan", "poptorch.options.files:_numbered_calls",
          "the last call of a file is left out", result(lambda calls: calls[:-1])), __name__
)  # fmt: skip
