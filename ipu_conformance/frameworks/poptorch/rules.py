"""Optimizers and learning-rate schedulers of torch and poptorch for the suite's rules, with every setting passed on."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple

import poptorch
import torch

from ipu_conformance.run import Rule, RunConfig


def optimizer(config: RunConfig, parameters: Any, rate: float, family: str = "") -> Any:
    """The optimizer for a rule, with every setting passed on; ``family`` is torch or poptorch, torch where it can."""
    rule = config.optimizer
    own: Dict[str, Any] = {}
    if config.loss_scale != 1.0:
        own["loss_scaling"] = config.loss_scale
    if config.clip_norm is not None:
        own["max_grad_norm"] = config.clip_norm
    if config.accumulators == "float16":
        own["accum_type"] = torch.float16
    module = poptorch.optim if own or family == "poptorch" or rule.name == "lamb" else torch.optim
    common = {"lr": rate, "weight_decay": rule["weight_decay"], **own}
    return _OPTIMIZERS[rule.name](module, parameters, rule, common)


def groups(config: RunConfig, named: Iterable[Tuple[str, Any]]) -> List[Any]:
    """The parameters as an optimizer takes them: a list, or a group for every decay if weights have their own."""
    decays = dict(config.decays)
    by_decay: Dict[float, List[Any]] = {}
    for name, parameter in named:
        by_decay.setdefault(decays.get(name, config.optimizer["weight_decay"]), []).append(parameter)
    if not decays:
        return next(iter(by_decay.values()))
    return [{"params": held, "weight_decay": decay} for decay, held in by_decay.items()]


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

    def __init__(self, config: RunConfig, named: Iterable[Tuple[str, Any]], family: str = "") -> None:
        rule = config.learning_rate
        self.optimizer = optimizer(config, groups(config, named), rule["base"], family)
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
