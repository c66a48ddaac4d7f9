"""The update that the device executes: an optimizer's settings applied to weights, gradients and state by name."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Dict, List, Mapping, Tuple

import torch

from ipu_conformance.emulator.poptorch.optim import read
from ipu_conformance.emulator.poptorch.optim.kernels import KERNELS, hyper_parameters
from ipu_conformance.emulator.poptorch.options.enums import MeanReductionStrategy
from ipu_conformance.emulator.poptorch.refusals import optim as refusals

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

    def __init__(self, settings: read.Settings, running_mean: bool = False) -> None:
        self.running_mean = running_mean
        """Whether the mean of gradients is kept while accumulating, not computed from the sum at the end."""
        self._use(settings)

    def _use(self, settings: read.Settings) -> None:
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
        kind: torch.dtype = self.settings.whole["accum_type"]
        return kind

    @property
    def max_grad_norm(self) -> float:
        """The norm above which all gradients are shrunk together; infinite for none."""
        return float(self.settings.whole.get("max_grad_norm", math.inf))

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
        calls: Dict[Tuple[int, int], List[str]] = {}
        for name in gradients:
            group = self._group_of.get(name)
            if group is not None:
                before = self._ensure_state(name, weights[name], state, self._hyper[group])
                calls.setdefault((group, before), []).append(name)
        for (group, before), names in calls.items():
            self._run(group, before + 1, names, weights, gradients, state)

    def _run(
        self, group: int, t: int, names: List[str], weights: Tensors, gradients: Tensors, state: Dict[str, Tensors]
    ) -> None:
        h, held, grads = self._hyper[group], [weights[name] for name in names], [gradients[name] for name in names]
        slots = self._kernel.slots(h)
        columns = {slot: [state[name][slot] for name in names] for slot in slots}
        wide = {slot: _widened(tensors) for slot, tensors in columns.items()}
        new, grads = _widened(held), _widened(grads)
        self._kernel.run(new, grads, wide, h, t)
        for before, after in ((held, new), *((columns[slot], wide[slot]) for slot in slots)):
            for old, fresh in zip(before, after):
                if old is not fresh:
                    old.copy_(fresh)
        if slots:
            for name in names:
                state[name][STEP].add_(1)

    def _ensure_state(self, name: str, weight: torch.Tensor, state: Dict[str, Tensors], h: SimpleNamespace) -> int:
        """Make the state that a weight lacks; return how often its state was updated."""
        slots = self._kernel.slots(h)
        if not slots:
            return 0
        tensors = state.setdefault(name, {})
        for slot in slots:
            if slot not in tensors:
                start = self._kernel.begin(slot, h)
                tensors[slot] = torch.full_like(weight, start, dtype=self.type_of(slot), requires_grad=False)
        if STEP not in tensors:
            tensors[STEP] = torch.zeros((), dtype=torch.float32)
        return int(tensors[STEP])

    def type_of(self, slot: str) -> torch.dtype:
        """The dtype in which a state is held."""
        whole = self.settings.whole
        return next(whole[name] for name in SLOT_TYPE[slot] if name in whole)


def rule_for(optimizer: Any, parameters: Mapping[str, torch.Tensor], options: Any) -> DeviceUpdate:
    """The update of ``optimizer`` for weights that are known by name; what is odd about it is logged."""
    settings = read.read(optimizer, parameters)
    if options is not None and options.Training.auto_loss_scaling:
        settings = replace(settings, constant=settings.constant - {"loss_scaling"})
    read.warn(optimizer, options)
    return DeviceUpdate(settings, _running_mean(settings, options))


def _running_mean(settings: read.Settings, options: Any) -> bool:
    """The strategy that the options set, else a running mean for float16 accumulators, which a sum could overflow."""
    training = None if options is None else options.Training
    if training is not None and training._reduction_strategy_set:
        return training.mean_reduction_strategy == MeanReductionStrategy.Running
    whole = settings.whole
    return whole["accum_type"] == torch.float16 and not whole.get("use_combined_accum", False)


def changed_constants(old: DeviceUpdate, new: DeviceUpdate) -> None:
    """Refuse to replace what is compiled into the program; what was variable then may have any value now."""
    refusals.LATE_RUNNING_MEAN(before=old.running_mean, now=new.running_mean)
    was, now = old.settings, new.settings
    refusals.OTHER_OPTIMIZER(before=was, now=now)
    pairs = [("", was.whole, now.whole, was.constant)]
    pairs += [
        (f" of group {number}", before.values, after.values, before.constant)
        for number, (before, after) in enumerate(zip(was.groups, now.groups))
    ]
    for where, before, after, constant in pairs:
        for name in sorted(constant):
            refusals.CONSTANT_CHANGED(name=name, where=where, before=before[name], now=after[name])


def _widened(tensors: List[torch.Tensor]) -> List[torch.Tensor]:
    """The tensors in a dtype that is wide enough to compute in: the same ones where theirs is."""
    return [value.float() if value.dtype in (torch.float16, torch.bfloat16) else value for value in tensors]
