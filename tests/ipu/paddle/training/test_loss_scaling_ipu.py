"""Loss scaling: the gradients are scaled on their way and unscaled before the update, so that it cancels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ipu_conformance import check
from ipu_conformance.run import optimizer

from ...training import Runs, cut
from .config import counted

SCALED = counted(1, 3, 2)
BETAS = {"beta1": 0.5, "beta2": 0.75, "epsilon": 0.125}
RULES = {
    "sgd": optimizer("sgd"),
    "momentum": optimizer("sgd", momentum=0.5, weight_decay=0.125),
    "adam": optimizer("adam", **BETAS),
    "adamw": optimizer("adamw", weight_decay=0.125, **BETAS),
    "lamb": optimizer("lamb", weight_decay=0.125, **BETAS),
    "rmsprop": optimizer("rmsprop", alpha=0.75, epsilon=0.0625, epsilon_inside=True, rate_in_velocity=True),
}

pytestmark = pytest.mark.ipus(4)


@pytest.mark.parametrize("rule", RULES)
def test_a_power_of_two_cancels_to_the_bit(runs: Runs, rule: str) -> None:
    """A power of two as the loss scale changes no bit of losses, outputs and weights."""
    config = replace(SCALED, optimizer=RULES[rule])

    check.runs_identical(actual=runs.train("mlp", replace(config, loss_scale=64.0)), expected=runs.train("mlp", config))


@pytest.mark.parametrize("scale", [0.25, 3.0, 1000.0])
def test_any_scale_trains_as_specified(runs: Runs, scale: float) -> None:
    """The losses come back unscaled, and the weights are the oracle's."""
    runs.compare("mlp", replace(SCALED, loss_scale=scale))


@pytest.mark.parametrize("scale", [16.0, 3.0])
def test_clipping_sees_unscaled_gradients(runs: Runs, scale: float) -> None:
    """A scaled loss is clipped at the same norm as an unscaled one."""
    runs.compare("mlp", replace(SCALED, loss_scale=scale, clip_norm=0.25))


@pytest.mark.ipus(16)
@pytest.mark.parametrize("kind", ["pipelined", "sharded"])
def test_a_pipeline_carries_scaled_gradients(runs: Runs, kind: str) -> None:
    """Scaled gradients cross the borders of stages and are unscaled in each."""
    runs.compare("residual", cut("residual", counted(2, 5, 1, loss_scale=3.0), 3, kind))
