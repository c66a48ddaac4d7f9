"""The update that the device executes: an optimizer's settings applied to weights, gradients and state by name."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, Dict, List, Mapping, Tuple

import torch

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.poptorch import optim_read
from ipu_conformance.emulator.poptorch.optim_kernels import KERNELS, POINT, hyper_parameters

Tensors = Dict[str, torch.Tensor]

SLOT_TYPE: Mapping[str, Tuple[str, ...]] = {
    "velocity": ("velocity_accum_type", "first_order_momentum_accum_type"),
    "first": ("first_order_momentum_accum_type",),
    "second": ("second_order_momentum_accum_type",),
    "square": ("second_order_momentum_accum_type",),
    "mean": ("first_order_momentum_accum_type",),
}
"""The setting that gives the dtype in which each state is held: the first one that the optimizer has."""

STEP = "step"


class DeviceUpdate:
    """One optimizer on the device; a new one takes over the state of the one before it."""

    def __init__(self, settings: optim_read.Settings) -> None:
        self.settings = settings
        self._kernel = KERNELS[settings.kind]
        shared = {name: value for name, value in settings.whole.items() if not name.endswith("_type")}
        self._hyper = [hyper_parameters(**{**shared, **group.values}) for group in settings.groups]
        self._group_of = {name: number for number, group in enumerate(settings.groups) for name in group.names}

    @property
    def loss_scale(self) -> float:
        """What the loss is multiplied by before the backward pass; gradients reach ``step`` without it."""
        return float(self.settings.whole["loss_scaling"])

    @property
    def accum_type(self) -> torch.dtype:
        """The dtype in which gradients are accumulated."""
        return self.settings.whole["accum_type"]

    @property
    def running_mean(self) -> bool:
        """Are accumulated gradients a running mean, which float16 needs so as not to overflow?"""
        return self.accum_type == torch.float16 and not self.settings.whole.get("use_combined_accum", False)

    @property
    def max_grad_norm(self) -> float:
        """The norm above which all gradients are shrunk together; infinite for none."""
        limit = self.settings.whole.get("max_grad_norm")
        return math.inf if limit is None else float(limit)

    def clip_factor(self, gradients: Mapping[str, torch.Tensor]) -> float:
        """What to multiply every gradient by so that the norm of all of them is at most ``max_grad_norm``."""
        limit = self.max_grad_norm
        if math.isinf(limit) or not gradients:
            return 1.0
        norms = torch._foreach_norm([value.float() for value in gradients.values()])
        norm = float(torch.stack(list(norms)).norm())
        return limit / max(norm, limit)

    def step(self, weights: Tensors, gradients: Tensors, state: Dict[str, Tensors]) -> None:
        """Change the weights that a group holds, and their state, in place; the gradients are only read."""
        by_call: Dict[Tuple[int, float], List[str]] = {}
        for name in gradients:
            group = self._group_of.get(name)
            if group is not None:
                own = self._state_of(name, weights[name], state, self._hyper[group])
                by_call.setdefault((group, own[STEP].item()), []).append(name)
        for (group, before), names in by_call.items():
            self._run(group, int(before) + 1, names, weights, gradients, state)

    def _run(
        self, group: int, t: int, names: List[str], weights: Tensors, gradients: Tensors, state: Dict[str, Tensors]
    ) -> None:
        h = self._hyper[group]
        if faults.active:
            h = faults.apply(POINT, SimpleNamespace(**vars(h)), kind=self.settings.kind)
        slots = self._kernel.slots(h)
        held = [weights[name] for name in names]
        columns = {slot: [state[name][slot] for name in names] for slot in slots}
        wide = {slot: _widened(own) for slot, own in columns.items()}
        new = _widened(held)
        self._kernel.run(new, _widened([gradients[name] for name in names]), wide, h, t)
        for before, after in ((held, new), *((columns[slot], wide[slot]) for slot in slots)):
            for old, fresh in zip(before, after):
                if old is not fresh:
                    old.copy_(fresh)
        for name in names:
            state[name][STEP].fill_(t)

    def _state_of(
        self, name: str, weight: torch.Tensor, state: Dict[str, Tensors], h: SimpleNamespace
    ) -> Tensors:
        own = state.setdefault(name, {})
        if STEP not in own:
            own[STEP] = torch.zeros((), dtype=torch.float32)
        for slot in self._kernel.slots(h):
            if slot not in own:
                start = self._kernel.begin(slot, h)
                own[slot] = torch.full_like(weight, start, dtype=self._type_of(slot), requires_grad=False)
        return own

    def _type_of(self, slot: str) -> torch.dtype:
        whole = self.settings.whole
        return next(whole[name] for name in SLOT_TYPE[slot] if name in whole)


def rule_for(optimizer: Any, parameters: Mapping[str, torch.Tensor], options: Any) -> DeviceUpdate:
    """The update of ``optimizer`` for weights that are known by name."""
    return DeviceUpdate(optim_read.read(optimizer, parameters))


def _widened(tensors: List[torch.Tensor]) -> List[torch.Tensor]:
    """The tensors in a dtype that is wide enough to compute in: the same ones where theirs is."""
    return [value.float() if value.dtype in (torch.float16, torch.bfloat16) else value for value in tensors]
