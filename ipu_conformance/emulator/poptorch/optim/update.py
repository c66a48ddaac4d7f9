"""The update that the device executes: an optimizer's settings applied to weights, gradients and state by name."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, Dict, List, Mapping, Tuple

import torch

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.poptorch.optim import read
from ipu_conformance.emulator.poptorch.optim.kernels import KERNELS, hyper_parameters
from ipu_conformance.emulator.poptorch.options.diagnostics import Error
from ipu_conformance.emulator.poptorch.options.enums import MeanReductionStrategy

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
        kind = self.settings.whole["accum_type"]
        return faults.apply("optim.accumulator", kind) if faults.active else kind

    @property
    def max_grad_norm(self) -> float:
        """The norm above which all gradients are shrunk together; infinite for none."""
        return float(self.settings.whole.get("max_grad_norm", math.inf))

    def clip_factor(self, gradients: Mapping[str, torch.Tensor]) -> float:
        """What to multiply every gradient by so that the norm of all of them is at most ``max_grad_norm``."""
        limit = self.max_grad_norm
        if faults.active:
            limit = faults.apply("optim.clip", limit)
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
        if faults.active:
            kind = self.settings.kind
            h = faults.apply("optim.hyper_parameters", SimpleNamespace(**vars(h)), kind=kind, groups=self._hyper)
            grads = faults.apply("optim.gradients", grads, loss_scale=self.loss_scale)
            t = faults.apply("optim.count", t, kind=kind)
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
        kind = next(whole[name] for name in SLOT_TYPE[slot] if name in whole)
        return faults.apply("optim.state_type", kind, slot=slot) if faults.active else kind


def rule_for(optimizer: Any, parameters: Mapping[str, torch.Tensor], options: Any) -> DeviceUpdate:
    """The update of ``optimizer`` for weights that are known by name; what is odd about it is logged."""
    settings = read.read(optimizer, parameters)
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
    if faults.active:
        new._use(faults.apply("optim.replaced", new.settings, before=old.settings))
        if not faults.apply("optim.compiled_in", True):
            return
    if new.running_mean and not old.running_mean:
        raise ValueError(
            "The new optimizer needs the mean reduction strategy Running, but the model is already compiled with Post: "
            "set this optimizer before compiling, or set the strategy in the options"
        )
    was, now = old.settings, new.settings
    if was.kind != now.kind or len(was.groups) != len(now.groups):
        raise Error(
            f"The model is compiled with {was.kind} and {len(was.groups)} groups, the new optimizer is {now.kind} "
            f"with {len(now.groups)}: use the same kind of optimizer and the same groups"
        )
    pairs = [("", was.whole, now.whole, was.constant)]
    pairs += [
        (f" of group {number}", before.values, after.values, before.constant)
        for number, (before, after) in enumerate(zip(was.groups, now.groups))
    ]
    for where, before, after, constant in pairs:
        for name in sorted(constant):
            if before[name] != after[name]:
                raise Error(
                    f"The attribute {name}{where} is compiled in as the constant {before[name]} and cannot become "
                    f"{after[name]}: mark it as variable, or pass it explicitly, before compiling"
                )


def _widened(tensors: List[torch.Tensor]) -> List[torch.Tensor]:
    """The tensors in a dtype that is wide enough to compute in: the same ones where theirs is."""
    return [value.float() if value.dtype in (torch.float16, torch.bfloat16) else value for value in tensors]
