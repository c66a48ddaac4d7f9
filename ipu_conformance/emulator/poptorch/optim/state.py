"""The optimizer's state on the device, as ``state_dict`` shows it and as ``load_state_dict`` gives it back.

Tensors are named as in the compiled program: a prefix for the role, then the weight's name.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple

import torch

from ipu_conformance.emulator.poptorch.optim.read import Settings

Tensors = Dict[str, torch.Tensor]
State = Dict[str, Tensors]

PREFIXES: Mapping[str, Mapping[str, str]] = {
    "sgd": {"velocity": "Accl1___"},
    "adam": {"first": "Accl1___", "second": "Accl2___", "step": "Step___"},
    "adamw": {"first": "Accl1___", "second": "Accl2___", "step": "Step___"},
    "rmsprop": {"square": "Accl1___", "mean": "Accl2___", "velocity": "Accl3___"},
    "lamb": {"first": "Accl1___", "second": "Accl2___", "step": "Step___"},
}
"""How the program names each state of each kind of optimizer."""


def named(kind: str, state: Mapping[str, Mapping[str, torch.Tensor]]) -> Tensors:
    """Copies of the state under the names that the program gives its tensors."""
    prefixes = PREFIXES[kind]
    return {
        prefixes[slot] + name: value.detach().clone()
        for name, slots in state.items()
        for slot, value in slots.items()
        if slot in prefixes
    }


def by_weight(kind: str, tensors: Mapping[str, torch.Tensor]) -> State:
    """The state by weight from tensors under the names that ``named`` gives; other names are left out."""
    state: State = {}
    for slot, prefix in PREFIXES[kind].items():
        for name, value in tensors.items():
            if name.startswith(prefix):
                state.setdefault(name[len(prefix) :], {})[slot] = value.detach().clone()
    for slots in state.values():  # kinds that export no count have none to restore: their first update lies behind them
        slots.setdefault("step", torch.ones((), dtype=torch.float32))
    return state


def parameters(settings: Settings) -> Tensors:
    """The numbers that are sent to the program: those that are variable, with the number of their group."""
    numbers: Dict[str, float] = {}
    parts: List[Tuple[str, Mapping[str, Any], Any]] = [("", settings.whole, settings.constant)]
    parts += [(f"___{number}", group.values, group.constant) for number, group in enumerate(settings.groups)]
    for suffix, values, constant in parts:
        for name, value in values.items():
            if name in constant:
                continue
            if isinstance(value, tuple):
                numbers.update({f"{name}{index}{suffix}": float(each) for index, each in enumerate(value)})
            elif value is not None:
                numbers[f"{name}{suffix}"] = float(value)
    return {name: torch.tensor(number, dtype=torch.float32) for name, number in numbers.items()}
