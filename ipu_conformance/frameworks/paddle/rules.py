"""Paddle's optimizers and learning-rate schedulers for the suite's rules, with every setting passed on."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Tuple, Union

import paddle

from ipu_conformance.run import Rule, RunConfig

Maker = Callable[[Rule, Dict[str, Any]], Any]


def _moments(rule: Rule) -> Dict[str, Any]:
    return {"beta1": rule["beta1"], "beta2": rule["beta2"], "epsilon": rule["epsilon"]}


def _decay(rule: Rule) -> Dict[str, Any]:
    """Decay that joins the gradient; a decay of zero adds no op."""
    return {"weight_decay": rule["weight_decay"] or None}


def _sgd(rule: Rule, common: Dict[str, Any]) -> Any:
    if rule["momentum"]:
        return paddle.optimizer.Momentum(momentum=rule["momentum"], **_decay(rule), **common)
    return paddle.optimizer.SGD(**_decay(rule), **common)


_OPTIMIZERS: Mapping[str, Maker] = {
    "sgd": _sgd,
    "adam": lambda rule, common: paddle.optimizer.Adam(**_moments(rule), **_decay(rule), **common),
    "adamw": lambda rule, common: paddle.optimizer.AdamW(**_moments(rule), weight_decay=rule["weight_decay"], **common),
    "adamax": lambda rule, common: paddle.optimizer.Adamax(**_moments(rule), **_decay(rule), **common),
    "rmsprop": lambda rule, common: paddle.optimizer.RMSProp(
        rho=rule["alpha"],
        epsilon=rule["epsilon"],
        momentum=rule["momentum"],
        centered=rule["centred"],
        **_decay(rule),
        **common,
    ),
    "adagrad": lambda rule, common: paddle.optimizer.Adagrad(
        epsilon=rule["epsilon"], initial_accumulator_value=rule["initial"], **_decay(rule), **common
    ),
    "adadelta": lambda rule, common: paddle.optimizer.Adadelta(
        rho=rule["rho"], epsilon=rule["epsilon"], **_decay(rule), **common
    ),
    # The trust ratio is part of the rule, also where nothing decays.
    "lamb": lambda rule, common: paddle.optimizer.Lamb(
        lamb_weight_decay=rule["weight_decay"], always_adapt=True, **_moments(rule), **common
    ),
}

STATES: Mapping[str, Mapping[str, str]] = {
    "adam": {"first": "moment1", "second": "moment2"},
    "adamw": {"first": "moment1", "second": "moment2"},
    "adamax": {"first": "moment"},
    "rmsprop": {"square": "mean_square", "mean": "mean_grad"},
    "adagrad": {"square": "moment"},
    "adadelta": {"square": "_avg_squared_grad", "change": "_avg_squared_update"},
    "lamb": {"first": "moment1", "second": "moment2"},
}
"""Each optimizer's state: the rule's word and the word in Paddle's names, which are ``<weight>_<word>_0``.

Left out is what a device does not bring home (the norm of adamax, the velocity of rmsprop) or holds in a form of its
own (the velocity of momentum, which PopART multiplies for the next step).
"""

_SCHEDULERS: Mapping[str, Callable[[Any, Rule], Any]] = {
    "step": lambda lr, rule: lr.StepDecay(rule["base"], rule["size"], rule["gamma"]),
    "multistep": lambda lr, rule: lr.MultiStepDecay(rule["base"], list(rule["milestones"]), rule["gamma"]),
    "exponential": lambda lr, rule: lr.ExponentialDecay(rule["base"], rule["gamma"]),
    "polynomial": lambda lr, rule: lr.PolynomialDecay(
        rule["base"], rule["total"], rule["end"], rule["power"], rule["cycle"]
    ),
    "cosine": lambda lr, rule: lr.CosineAnnealingDecay(rule["base"], rule["total"], rule["end"]),
    "warmup": lambda lr, rule: lr.LinearWarmup(rule["base"], rule["length"], rule["start"], rule["base"]),
    "piecewise": lambda lr, rule: lr.PiecewiseDecay(list(rule["boundaries"]), list(rule["values"])),
    "natural_exp": lambda lr, rule: lr.NaturalExpDecay(rule["base"], rule["gamma"]),
    "inverse_time": lambda lr, rule: lr.InverseTimeDecay(rule["base"], rule["gamma"]),
    "noam": lambda lr, rule: lr.NoamDecay(rule["model_size"], rule["warmup"], rule["base"]),
}


def rate(config: RunConfig) -> Union[float, Any]:
    """The learning rate as an optimizer takes it: a number, or Paddle's scheduler."""
    rule = config.learning_rate
    if rule.name == "constant":
        return float(rule["base"])
    return _SCHEDULERS[rule.name](paddle.optimizer.lr, rule)


def optimizer(config: RunConfig, rate: Union[float, Any]) -> Any:
    """Paddle's optimizer for a configuration, which clips by the global norm where the configuration says so."""
    clip = None if config.clip_norm is None else paddle.nn.ClipGradByGlobalNorm(config.clip_norm)
    common = {"learning_rate": rate, "grad_clip": clip}
    if config.decays:  # lamb's alone: those that it exempts
        exempt = {name for name, _ in config.decays}
        common["exclude_from_weight_decay_fn"] = lambda weight: weight.name in exempt
    return _OPTIMIZERS[config.optimizer.name](config.optimizer, common)


def states(rule: Rule) -> Tuple[Tuple[str, str], ...]:
    """The pairs of ``STATES`` of a rule."""
    return tuple(STATES.get(rule.name, {}).items())
