"""What only TensorFlow has of optimizers: an older generation, the vendor's own, and schedules on the device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ipu_conformance.run import Rule, learning_rate, optimizer

from ...training import Runs, ipus
from .config import counted

STEPS = counted(3, 2, 1)

pytestmark = ipus(STEPS)


def adam(name: str = "adam", **settings: Any) -> Rule:
    """Adam with its epsilon beside the plain root; the decays, and one less them, are exact in float32."""
    return optimizer(name, **{"beta1": 0.5, "beta2": 0.75, "epsilon": 0.0625, "epsilon_at": "uncorrected", **settings})


def rmsprop(**settings: Any) -> Rule:
    """RMSprop with the rate in the velocity."""
    return optimizer("rmsprop", alpha=0.75, epsilon=0.0625, rate_in_velocity=True, **settings)


def lamb(**settings: Any) -> Rule:
    """LAMB with decays that are exact in float32."""
    return optimizer("lamb", **{"beta1": 0.5, "beta2": 0.75, "epsilon": 0.0625, "weight_decay": 0.25, **settings})


# Epsilon is large so that no gradient is too small for its root: rounding errors stay in proportion to the step.
LEGACY = {
    "sgd-momentum": optimizer("sgd", momentum=0.75, rate_in_velocity=True),
    "sgd-nesterov": optimizer("sgd", momentum=0.75, rate_in_velocity=True, nesterov=True),
    "adam": adam(),
    "adamax": adam("adamax", epsilon_at="denominator"),
    "rmsprop": rmsprop(),
    "rmsprop-momentum": rmsprop(momentum=0.5, epsilon_inside=True),
    "rmsprop-centred": rmsprop(centred=True),
    "adagrad": optimizer("adagrad", epsilon=0.0625, initial=0.125),
    "adadelta": optimizer("adadelta", rho=0.75, epsilon=0.0625),
}
"""The older generation, the only one of TensorFlow 2.6, adds the epsilon of some rules to the root."""


ADDONS = {
    "sgd": optimizer("sgd"),
    "sgd-momentum": optimizer("sgd", momentum=0.75, rate_in_velocity=True),
    "sgd-nesterov": optimizer("sgd", momentum=0.75, rate_in_velocity=True, nesterov=True),
    "adam": adam(epsilon_at="corrected"),
    "adam-biased": adam(epsilon_at="corrected", bias_correction=False),
    "lamb": lamb(),
    "lamb-biased": lamb(bias_correction=False),
    "lamb-clipped": lamb(max_weight_norm=0.25),
}
"""The optimizers of graphcore/ipu_tensorflow_addons ``ipu_tensorflow_addons/keras/optimizers``."""


STEPPING = [("legacy", rule) for rule in LEGACY] + [("addons", rule) for rule in ADDONS]


@pytest.mark.parametrize(("generation", "rule"), STEPPING)
def test_an_optimizer_steps_as_specified(runs: Runs, generation: str, rule: str) -> None:
    """Three steps, each after two micro-batches, move the weights and the state where the oracle moves them.

    Those of the add-ons do so under a rate that falls.
    """
    config = replace(STEPS, optimizer={"legacy": LEGACY, "addons": ADDONS}[generation][rule])
    if generation == "addons":
        pytest.importorskip("ipu_tensorflow_addons", reason="the vendor's package of add-ons is not installed")
        config = replace(config, rate_changes="update", learning_rate=RATES["exponential"])

    runs.compare("linear", config, ["losses", "weights"], generation=generation)
    if rule != "sgd":
        runs.compare_state("linear", config, generation=generation)


RATES = {
    "exponential": learning_rate("exponential", base=0.0625, gamma=0.5),
    "staircase": learning_rate("exponential", base=0.0625, gamma=0.5, every=2, staircase=True),
    "polynomial": learning_rate("polynomial", base=0.0625, total=4, end=0.015625),
    "piecewise": learning_rate("piecewise", boundaries=(0, 1), values=(0.125, 0.0625, 0.25), closed=True),
    "inverse-time": learning_rate("inverse_time", base=0.0625, gamma=0.5),
}


@pytest.mark.parametrize("way", RATES)
def test_a_schedule_moves_on_with_every_update(runs: Runs, way: str) -> None:
    """A schedule of Keras is evaluated on the device, which counts its updates."""
    config = replace(STEPS, rate_changes="update", learning_rate=RATES[way])

    runs.compare("linear", config, ["losses", "weights"])
