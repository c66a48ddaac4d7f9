"""Optimizers and learning-rate schedulers of torch and poptorch for the suite's rules, with every setting passed on."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Dict, Mapping, Optional

import poptorch
import torch

from ipu_conformance.run import Rule, RunConfig


def optimizer(config: RunConfig, parameters: Any, rate: float, family: str = "") -> Any:
    """The optimizer for a rule, with every setting passed on; ``family`` is torch or poptorch, torch where it can."""
    rule = config.optimizer
    common: Dict[str, Any] = {"lr": rate, "weight_decay": rule["weight_decay"]}
    if config.loss_scale != 1.0:
        common["loss_scaling"] = config.loss_scale
    vendor = family == "poptorch" or config.loss_scale != 1.0 or rule.name == "lamb"
    return _OPTIMIZERS[rule.name](poptorch.optim if vendor else torch.optim, parameters, rule, common)


_OPTIMIZERS: Mapping[str, Callable[[Any, Any, Rule, Dict[str, Any]], Any]] = {
    "sgd": lambda family, parameters, rule, common: family.SGD(
        parameters, momentum=rule["momentum"], dampening=rule["dampening"], nesterov=rule["nesterov"], **common
    ),
    "adam": lambda family, parameters, rule, common: family.Adam(parameters, **_moments(rule), **common),
    "adamw": lambda family, parameters, rule, common: family.AdamW(parameters, **_moments(rule), **common),
    "rmsprop": lambda family, parameters, rule, common: family.RMSprop(
        parameters,
        alpha=rule["alpha"],
        eps=rule["epsilon"],
        momentum=rule["momentum"],
        centered=rule["centred"],
        **common,
    ),
    "lamb": lambda family, parameters, rule, common: family.LAMB(
        parameters, bias_correction=rule["bias_correction"], **_moments(rule), **common
    ),
}


def _moments(rule: Rule) -> Dict[str, Any]:
    return {"betas": (rule["beta1"], rule["beta2"]), "eps": rule["epsilon"]}


_SCHEDULERS: Mapping[str, Callable[[Any, Any, Rule], Any]] = {
    "step": lambda module, optimizer, rule: module.StepLR(optimizer, rule["size"], rule["gamma"]),
    "multistep": lambda module, optimizer, rule: module.MultiStepLR(optimizer, list(rule["milestones"]), rule["gamma"]),
    "exponential": lambda module, optimizer, rule: module.ExponentialLR(optimizer, rule["gamma"]),
    "polynomial": lambda module, optimizer, rule: module.PolynomialLR(optimizer, rule["total"], rule["power"]),
    "cosine": lambda module, optimizer, rule: module.CosineAnnealingLR(optimizer, rule["total"], rule["end"]),
    "warmup": lambda module, optimizer, rule: module.LinearLR(
        optimizer, rule["start"] / rule["base"], 1.0, rule["length"]
    ),
}


class Schedule:
    """The optimizer of a run and torch's scheduler of its learning rate, which moves on once a step."""

    def __init__(self, config: RunConfig, parameters: Any, family: str = "") -> None:
        rule = config.learning_rate
        self.optimizer = optimizer(config, parameters, rule["base"], family)
        self._scheduler: Optional[Any] = None
        if rule.name != "constant":
            self._scheduler = _SCHEDULERS[rule.name](torch.optim.lr_scheduler, self.optimizer, rule)

    def advance(self) -> bool:
        """Move on by one step; False if the rate never changes."""
        if self._scheduler is None:
            return False
        with warnings.catch_warnings():
            # The device steps the optimizer, so torch never sees it done.
            warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step", UserWarning)
            self._scheduler.step()
        return True


def inexpressible(config: RunConfig) -> Dict[str, bool]:
    """What torch and poptorch have no words for, and whether a configuration asks for it."""
    rule, schedule = dict(config.optimizer.settings), dict(config.learning_rate.settings)
    name, scheduler = config.optimizer.name, config.learning_rate.name
    return {
        f"the optimizer {name}": name not in _OPTIMIZERS,
        "the learning rate inside the velocity": rule.get("rate_in_velocity", False),
        "epsilon inside the root": rule.get("epsilon_inside", False),
        "epsilon beside the uncorrected root": rule.get("epsilon_at") == "uncorrected",
        "moments without bias correction": name != "lamb" and not rule.get("bias_correction", True),
        "a rate that changes on the device": config.rate_changes == "update",
        f"the schedule {scheduler}": scheduler not in ("constant", *_SCHEDULERS),
        "a schedule in pieces": schedule.get("every", 1) != 1 or schedule.get("staircase", False),
        "polynomial decay to an end or in cycles": scheduler == "polynomial"
        and bool(schedule["end"] or schedule["cycle"]),
        "a cosine that stays at its end": scheduler == "cosine" and config.steps > schedule["total"] + 1,
        "a warm-up from nothing": scheduler == "warmup" and not 0 < schedule["start"] <= schedule["base"],
    }
