"""Ways for options to be wrong: shared by clones, lost, or left at another default."""

from __future__ import annotations

import copy
import inspect
from typing import Any, Callable

from ipu_conformance.emulator.faults.catalogue import Fault, patch, register, result

OPTIONS = "poptorch.options.options:Options"
VALUES = "poptorch.options.values:OptionValues"
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


@patch("options-period-lost", "plan", f"{VALUES}.set",
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


@patch("options-set-on-a-copy", "plan", f"{VALUES}.set", "setting an option returns other options")
def _other_options(original: Original, options: Any, **values: Any) -> Any:
    return copy.deepcopy(original(options, **values))


@patch("options-not-stored", "plan", f"{VALUES}.set", "an option is checked and then forgotten")
def _forgotten(original: Original, options: Any, **values: Any) -> Any:
    before = dict(options._values)
    original(options, **values)
    options._values.update(before)
    return options


@patch("options-round-by-default", "plan", f"{VALUES}.__init__", "autoRoundNumIPUs is on unless it is set")
def _on(original: Original, options: Any) -> None:
    original(options)
    if "auto_round_num_ipus" in options._values:
        options._values["auto_round_num_ipus"] = True


@patch("options-unknown-read-as-none", "plan", f"{VALUES}.__getattr__", "an option that does not exist reads as None")
def _none(original: Original, options: Any, name: str) -> Any:
    return original(options, name) if name.startswith("_") else options._values.get(name)


@patch("options-deprecation-unsaid", "plan", "poptorch.options.sections:_PrecisionOptions.halfFloatCasting",
       "a deprecated option does not say so")  # fmt: skip
def _unsaid(original: Original, options: Any, value: Any) -> Any:
    return inspect.unwrap(original)(options, value)


register(
    Fault("options-clone-begins-anew", "plan", f"{OPTIONS}.clone", "a clone has the default of every option",
          lambda original, options: type(options)()), __name__
)  # fmt: skip


@patch("output-period-need-not-divide", "streams", "core.streams:select_every",
       "a period that does not divide the micro-batches returns the last of them")  # fmt: skip
def _last_alone(original: Any, layout: Any, period: int) -> Any:
    return original(layout, layout.micro_batches if layout.micro_batches % period else period)


@patch("older-reduction-type-unheard", "reduce", "poptorch.options.sections:_TrainingOptions.accumulationReductionType",
       "the older name of the reduction type sets nothing")  # fmt: skip
def _unheard(original: Any, options: Any, reduction_type: Any) -> Any:
    return options


@patch("options-switched-on-for-good", "plan", f"{VALUES}.set", "an option that is on cannot be switched off")
def _kept_on(original: Original, options: Any, **values: Any) -> Any:
    kept = {name: options._values.get(name, value) if value is False else value for name, value in values.items()}
    return original(options, **kept)


@patch("nests-compared-by-their-tensors", "plan", "poptorch.api.testing:allclose", "lists and tuples are alike")
def _of_one_kind(original: Original, ref: Any, other: Any) -> Any:
    return original(*(list(each) if isinstance(each, (list, tuple)) else each for each in (ref, other)))
