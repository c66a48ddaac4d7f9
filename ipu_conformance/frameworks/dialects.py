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

_OPTIMIZERS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "poptorch": {},
    "paddle": {"adamax": {"epsilon_at": "norm"}, "rmsprop": _INSIDE},
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
    """The same training as a framework says it."""
    settings: Dict[str, Any] = dict(_OPTIMIZERS[framework].get(config.optimizer.name, {}))
    if framework == "tensorflow" and config.optimizer.name == "sgd" and config.optimizer["momentum"]:
        settings.update(_VELOCITY)
    return replace(
        config,
        output_layout=framework,
        optimizer=_changed(config.optimizer, settings),
        learning_rate=_changed(config.learning_rate, _SCHEDULES.get(framework, {}).get(config.learning_rate.name, {})),
        **_RUNS[framework],
    )


def _changed(rule: Rule, settings: Mapping[str, Any]) -> Rule:
    return Rule(rule.name, tuple({**dict(rule.settings), **settings}.items()))
