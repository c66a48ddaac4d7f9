"""How each framework says one and the same training: the conventions in which a neutral configuration is put.

A neutral configuration leaves open what the frameworks settle for their users: the layout of outputs, where epsilon is
added, whether a velocity holds the learning rate, how replicas are reduced. No framework is imported.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, Mapping

from ipu_conformance.run import Rule, RunConfig

_VELOCITY = {"rate_in_velocity": True}
_INSIDE = {"rate_in_velocity": True, "epsilon_inside": True}

UNFOLDED_RATE = 0.009999999776482582
"""The learning rate of Paddle's adadelta and rmsprop on a device, 0.01 in 32 bits, whatever rate the program has."""
WITHOUT_RATE = ("adadelta", "rmsprop")

_OPTIMIZERS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "poptorch": {},
    "paddle": {"adamax": {"epsilon_at": "denominator"}},
    "tensorflow": {
        "adam": {"epsilon_at": "uncorrected"},
        "adamw": {"epsilon_at": "uncorrected"},
        "adamax": {"epsilon_at": "denominator"},
        "rmsprop": _INSIDE,
        "adagrad": {"epsilon_inside": True},
    },
}
_SCHEDULES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {"tensorflow": {"piecewise": {"closed": True}}}
_RUNS: Mapping[str, Mapping[str, Any]] = {
    "poptorch": {},
    "paddle": {"unbiased_statistics": False},
    # Keras' fit adds up what replicas give, however micro-batches are reduced.
    "tensorflow": {"replica_reduction": "sum"},
}


def spoken(framework: str, config: RunConfig) -> RunConfig:
    """The same training as a framework says it; a rate that a device has by itself is that rate."""
    settings: Dict[str, Any] = dict(_OPTIMIZERS[framework].get(config.optimizer.name, {}))
    if framework == "tensorflow" and config.optimizer.name == "sgd" and config.optimizer["momentum"]:
        settings.update(_VELOCITY)
    rate = dict(_SCHEDULES.get(framework, {}).get(config.learning_rate.name, {}))
    if framework == "paddle" and config.optimizer.name in WITHOUT_RATE and config.learning_rate.name == "constant":
        rate["base"] = UNFOLDED_RATE
    return replace(
        config,
        output_layout=framework,
        optimizer=_changed(config.optimizer, settings),
        learning_rate=_changed(config.learning_rate, rate),
        **_RUNS[framework],
    )


def _changed(rule: Rule, settings: Mapping[str, Any]) -> Rule:
    return Rule(rule.name, tuple({**dict(rule.settings), **settings}.items()))
