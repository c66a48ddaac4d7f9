"""Keras' optimizers and learning-rate schedules for the suite's rules, with every setting passed on.

Keras has two generations of optimizers, which place epsilon differently: "new", and "legacy", which is the only one of
TensorFlow 2.6. "addons" are the vendor's own, which place it as papers do.
"""

from __future__ import annotations

import importlib
import math
from types import SimpleNamespace
from typing import Any, Callable, Dict, Mapping, Union

import tensorflow as tf

from ipu_conformance.nets import Net
from ipu_conformance.run import Rule, RunConfig

Rate = Union[float, Any]
Maker = Callable[[Any, Rate, Rule, Dict[str, Any]], Any]


def _moments(rule: Rule) -> Dict[str, Any]:
    return {"beta_1": rule["beta1"], "beta_2": rule["beta2"], "epsilon": rule["epsilon"]}


def _addons() -> Any:
    """The optimizers of the vendor's package under the names of Keras'."""
    package = importlib.import_module("ipu_tensorflow_addons.keras.optimizers")
    return SimpleNamespace(SGD=package.SGDIpuOptimizer, Adam=package.AdamIpuOptimizer, LAMB=package.LAMBIpuOptimizer)


def _lamb(module: Any, rate: Rate, rule: Rule, common: Dict[str, Any]) -> Any:
    own = {name: value for name, value in common.items() if name != "weight_decay"}
    clip = None if math.isinf(rule["max_weight_norm"]) else rule["max_weight_norm"]
    return module.LAMB(rate, **_moments(rule), weight_decay_rate=rule["weight_decay"], weight_norm_clip=clip, **own)


_OPTIMIZERS: Mapping[str, Maker] = {
    "sgd": lambda module, rate, rule, common: module.SGD(
        rate, momentum=rule["momentum"], nesterov=rule["nesterov"], **common
    ),
    "adam": lambda module, rate, rule, common: module.Adam(rate, **_moments(rule), **common),
    "adamw": lambda module, rate, rule, common: module.AdamW(
        rate,
        **_moments(rule),
        **{"weight_decay": 0.0, **common},  # without one AdamW has a decay of its own
    ),
    "adamax": lambda module, rate, rule, common: module.Adamax(rate, **_moments(rule), **common),
    "rmsprop": lambda module, rate, rule, common: module.RMSprop(
        rate,
        rho=rule["alpha"],
        momentum=rule["momentum"],
        epsilon=rule["epsilon"],
        centered=rule["centred"],
        **common,
    ),
    "adagrad": lambda module, rate, rule, common: module.Adagrad(
        rate, initial_accumulator_value=rule["initial"], epsilon=rule["epsilon"], **common
    ),
    "adadelta": lambda module, rate, rule, common: module.Adadelta(
        rate, rho=rule["rho"], epsilon=rule["epsilon"], **common
    ),
    "lamb": _lamb,
}

_NEW: Mapping[str, Mapping[str, str]] = {
    "sgd": {"velocity": "m"},
    "adam": {"first": "m", "second": "v"},
    "adamw": {"first": "m", "second": "v"},
    "adamax": {"first": "m", "norm": "u"},
    "rmsprop": {"square": "velocity", "mean": "average_gradient", "velocity": "momentum"},
    "adagrad": {"square": "accumulator"},
    "adadelta": {"square": "accumulated_grad", "change": "accumulated_delta_var"},
}
_OLD: Mapping[str, Mapping[str, str]] = {
    "sgd": {"velocity": "momentum"},
    "adam": {"first": "m", "second": "v"},
    "adamax": {"first": "m", "norm": "v"},
    "rmsprop": {"square": "rms", "mean": "mg", "velocity": "momentum"},
    "adagrad": {"square": "accumulator"},
    "adadelta": {"square": "accum_grad", "change": "accum_var"},
    "lamb": {"first": "m", "second": "v"},
}
"""Each optimizer's state: the rule's word and the generation's own."""

_SCHEDULES: Mapping[str, Callable[[Any, Rule], Any]] = {
    "step": lambda module, rule: module.ExponentialDecay(rule["base"], rule["size"], rule["gamma"], True),
    "cosine": lambda module, rule: module.CosineDecay(rule["base"], rule["total"], rule["end"] / rule["base"]),
    "exponential": lambda module, rule: module.ExponentialDecay(
        rule["base"], rule["every"], rule["gamma"], rule["staircase"]
    ),
    "polynomial": lambda module, rule: module.PolynomialDecay(
        rule["base"], rule["total"], rule["end"], rule["power"], rule["cycle"]
    ),
    "piecewise": lambda module, rule: module.PiecewiseConstantDecay(list(rule["boundaries"]), list(rule["values"])),
    "inverse_time": lambda module, rule: module.InverseTimeDecay(
        rule["base"], rule["every"], rule["gamma"], rule["staircase"]
    ),
}
"""Keras' schedules: the device evaluates them by its count of updates, the host by the step."""


def _module(generation: str) -> Any:
    if generation == "addons":
        return _addons()
    module = tf.keras.optimizers
    return getattr(module, "legacy", module) if generation == "legacy" else module


def actual(generation: str) -> str:
    """The generation that a TensorFlow has: where there is only the older one, it is that."""
    return "legacy" if generation == "new" and hasattr(_module(generation).SGD, "get_slot") else generation


def rate(config: RunConfig) -> Rate:
    """The learning rate as an optimizer takes it: a number, or Keras' schedule if the device counts."""
    return host_rate(config, 0) if config.rate_changes == "run" else _schedule(config)


def host_rate(config: RunConfig, step: int) -> float:
    """The learning rate that the host sets before a step."""
    schedule = _schedule(config)
    return float(schedule(step)) if callable(schedule) else schedule


def _schedule(config: RunConfig) -> Rate:
    rule = config.learning_rate
    if rule.name == "constant":
        return float(rule["base"])
    return _SCHEDULES[rule.name](tf.keras.optimizers.schedules, rule)


def optimizer(config: RunConfig, *, generation: str = "new") -> Any:
    """Keras' optimizer for a configuration; it clips by the global norm where the configuration says so."""
    rule, common = config.optimizer, {}
    if config.clip_norm is not None:
        common["global_clipnorm"] = config.clip_norm
    if rule["weight_decay"]:
        common["weight_decay"] = rule["weight_decay"]
    if not dict(rule.settings).get("bias_correction", True):
        common["debiasing"] = False
    return _OPTIMIZERS[rule.name](_module(generation), rate(config), rule, common)


def loss(net: Net) -> Any:
    """Keras' loss of a net; the mean is the one that Keras takes by itself."""
    reduction = {} if dict(net.loss_settings)["reduction"] == "mean" else {"reduction": tf.keras.losses.Reduction.SUM}
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, **reduction)


def states(optimizer: Any, rule: Rule, variables: Mapping[str, Any]) -> Dict[str, Dict[str, Any]]:
    """The variables of an optimizer's state by the rule's words, then by weight; what it does not keep is left out."""
    old = hasattr(optimizer, "get_slot")
    unused = {"velocity": not rule["momentum"]} if rule.name in ("sgd", "rmsprop") else {}
    if rule.name == "rmsprop":
        unused["mean"] = not rule["centred"]
    words = {word: own for word, own in (_OLD if old else _NEW)[rule.name].items() if not unused.get(word)}
    if old:
        return {
            word: {name: optimizer.get_slot(held, own) for name, held in variables.items()}
            for word, own in words.items()
        }
    found = {variable.name.split(":")[0]: variable for variable in optimizer.variables}

    def state_of(held: Any, own: str) -> Any:
        ending = f"/{own}/{held.name.split(':')[0]}"
        return next(variable for name, variable in found.items() if f"/{name}".endswith(ending))

    return {word: {name: state_of(held, own) for name, held in variables.items()} for word, own in words.items()}


def sign(rule: Rule, word: str) -> int:
    """Keras adds the velocity of SGD to the weight, where the rule subtracts it."""
    return -1 if (rule.name, word) == ("sgd", "velocity") else 1
