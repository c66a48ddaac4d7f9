"""Every optimizer of Keras, of both generations, takes the oracle's steps, alone, on replicas and in pipelines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List

import pytest

from ipu_conformance.run import Rule, learning_rate, optimizer

from ...training import Runs, configured, cut, ipus
from .config import counted

STEPS = counted(3, 2, 1)

pytestmark = ipus(STEPS)


def momentum(**settings: Any) -> Rule:
    """SGD with a velocity that holds the learning rate."""
    return optimizer("sgd", momentum=0.75, rate_in_velocity=True, **settings)


def adam(name: str = "adam", **settings: Any) -> Rule:
    """Adam with its epsilon beside the plain root; the decays, and one less them, are exact in float32."""
    return optimizer(name, **{"beta1": 0.5, "beta2": 0.75, "epsilon": 0.0625, "epsilon_at": "uncorrected", **settings})


def rmsprop(**settings: Any) -> Rule:
    """RMSprop with its epsilon under the root and the rate in the velocity."""
    rule = {"alpha": 0.75, "epsilon": 0.0625, "epsilon_inside": True, "rate_in_velocity": True, **settings}
    return optimizer("rmsprop", **rule)


# Epsilon is large so that no gradient is too small for its root: rounding errors stay in proportion to the step.
RULES = {
    "sgd": optimizer("sgd"),
    "sgd-momentum": momentum(),
    "sgd-nesterov": momentum(nesterov=True),
    "sgd-decay": momentum(weight_decay=0.125, decoupled=True),
    "adam": adam(),
    "adam-betas": adam(beta1=0.875, beta2=0.9375),
    "adam-decay": adam(weight_decay=0.125, decoupled=True),
    "adamw": adam("adamw", weight_decay=0.125),
    "adamax": adam("adamax", epsilon_at="denominator"),
    "rmsprop": rmsprop(),
    "rmsprop-momentum": rmsprop(momentum=0.5),
    "rmsprop-centred": rmsprop(centred=True),
    "rmsprop-all": rmsprop(momentum=0.5, centred=True),
    "adagrad": optimizer("adagrad", epsilon=0.0625, initial=0.125, epsilon_inside=True),
    "adadelta": optimizer("adadelta", rho=0.75, epsilon=0.0625),
}
LEGACY = {
    "sgd-momentum": momentum(),
    "sgd-nesterov": momentum(nesterov=True),
    "adam": adam(),
    "adamax": adam("adamax", epsilon_at="denominator"),
    "rmsprop": rmsprop(epsilon_inside=False),
    "rmsprop-momentum": rmsprop(momentum=0.5),
    "rmsprop-centred": rmsprop(centred=True, epsilon_inside=False),
    "adagrad": optimizer("adagrad", epsilon=0.0625, initial=0.125),
    "adadelta": optimizer("adadelta", rho=0.75, epsilon=0.0625),
}
"""The older generation adds the epsilon of some rules to the root."""


def ruled() -> List[Any]:
    """Every rule of both generations."""
    rows = [(word, rule, False) for word, rule in RULES.items()]
    rows += [(f"legacy-{word}", rule, True) for word, rule in LEGACY.items()]
    return [pytest.param(replace(STEPS, optimizer=rule), legacy, id=word) for word, rule, legacy in rows]


@pytest.mark.parametrize(("config", "legacy"), ruled())
def test_an_optimizer_steps_as_specified(runs: Runs, config: Any, legacy: bool) -> None:
    """Three steps, each after two micro-batches, move the weights where the oracle moves them."""
    runs.compare("linear", config, ["losses", "weights"], legacy=legacy)


@pytest.mark.parametrize(("config", "legacy"), ruled()[1:])
def test_an_optimizer_keeps_the_state_that_is_specified(runs: Runs, config: Any, legacy: bool) -> None:
    """Velocities, moments and squares after the last step are the oracle's."""
    runs.compare_state("linear", config, legacy=legacy)


PLACED = ("sgd-nesterov", "adam", "rmsprop-all", "adagrad")
PIPELINED = {
    word: replace(cut("mlp", counted(2, 6, 1), 3, "interleaved"), optimizer=RULES[word]) for word in PLACED[:3]
}
REPLICATED = {word: replace(counted(3, 1, 2), optimizer=RULES[word]) for word in PLACED}


@pytest.mark.parametrize("config", configured(PIPELINED))
def test_an_optimizer_steps_once_per_pipeline_run(runs: Runs, config: Any) -> None:
    """A net in stages is updated as a whole one is, and so is the state."""
    runs.compare("mlp", config, ["losses", "weights"])
    runs.compare_state("mlp", config)


@pytest.mark.parametrize("config", configured(REPLICATED))
def test_an_optimizer_sees_the_sum_over_replicas(runs: Runs, config: Any) -> None:
    """The state of the first replica, which is what the host sees, is that of the summed gradients."""
    runs.compare("mlp", config, ["losses", "weights"])
    runs.compare_state("mlp", config)


RATES: Dict[str, Dict[str, Any]] = {
    "host": {"learning_rate": learning_rate("step", base=0.0625, size=1, gamma=0.5), "steps": 3},
    "exponential": {"learning_rate": learning_rate("exponential", base=0.0625, gamma=0.5)},
    "staircase": {"learning_rate": learning_rate("exponential", base=0.0625, gamma=0.5, every=2, staircase=True)},
    "polynomial": {"learning_rate": learning_rate("polynomial", base=0.0625, total=4, end=0.015625)},
    "piecewise": {
        "learning_rate": learning_rate("piecewise", boundaries=(0, 1), values=(0.125, 0.0625, 0.25), closed=True)
    },
    "inverse-time": {"learning_rate": learning_rate("inverse_time", base=0.0625, gamma=0.5)},
}


@pytest.mark.parametrize("way", RATES)
def test_the_rate_changes_when_it_should(runs: Runs, way: str) -> None:
    """A rate set by the host applies to the next fit, and a schedule of Keras moves on with every update."""
    config = replace(STEPS, rate_changes="run" if way == "host" else "update", **RATES[way])

    runs.compare("linear", config, ["losses", "weights"])


CLIPPED = {
    "single": replace(STEPS, clip_norm=0.5),
    "replicated": replace(counted(3, 1, 2), clip_norm=0.5),
    "pipelined": replace(cut("mlp", counted(3, 4, 1), 2), clip_norm=0.5),
}


@pytest.mark.parametrize("config", configured(CLIPPED))
def test_gradients_are_clipped_after_they_are_reduced(runs: Runs, config: Any) -> None:
    """The norm that is limited is that of all gradients of an update together."""
    runs.compare("mlp", config, ["losses", "weights"])
