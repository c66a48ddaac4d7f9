"""Learning-rate schedulers: the host steps them, and every run uses the rate that holds when it starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ipu_conformance import check, nets
from ipu_conformance.run import learning_rate, optimizer

from ...training import Runs, cut
from .config import counted

STEPS = counted(2, 1, 1, steps=5, optimizer=optimizer("sgd", momentum=0.5))
RATES = {
    "step": learning_rate("step", base=0.25, size=2, gamma=0.5),
    "multistep": learning_rate("multistep", base=0.25, milestones=(1, 4), gamma=0.5),
    "exponential": learning_rate("exponential", base=0.25, gamma=0.75),
    "polynomial": learning_rate("polynomial", base=0.25, total=3, end=0.0625, power=2.0),
    "polynomial-cycle": learning_rate("polynomial", base=0.25, total=2, end=0.0625, cycle=True),
    "cosine": learning_rate("cosine", base=0.25, total=5, end=0.0625),
    "warmup": learning_rate("warmup", base=0.25, length=3, start=0.0625),
    "piecewise": learning_rate("piecewise", boundaries=(1, 3), values=(0.25, 0.0625, 0.5)),
    "natural_exp": learning_rate("natural_exp", base=0.25, gamma=0.5),
    "inverse_time": learning_rate("inverse_time", base=0.25, gamma=0.5),
    "noam": learning_rate("noam", base=1.0, model_size=16, warmup=3),
}


@pytest.mark.parametrize("rate", RATES)
def test_a_scheduler_trains_as_specified(runs: Runs, rate: str) -> None:
    """The scheduler moves once a run, and all updates of a run use one rate."""
    runs.compare("linear", replace(STEPS, learning_rate=RATES[rate]))


@pytest.mark.ipus(4)
@pytest.mark.parametrize("kind", ["pipelined", "sharded"])
@pytest.mark.parametrize("rate", ["step", "piecewise"])
def test_every_stage_gets_the_rate(runs: Runs, rate: str, kind: str) -> None:
    """A change of rate reaches the weights of all stages in the same run."""
    config = replace(STEPS, learning_rate=RATES[rate], gradient_accumulation=5, steps=3)

    runs.compare("mlp", cut("mlp", config, 3, kind))


@pytest.mark.parametrize("rule", ["adam", "adamw"])
def test_a_rate_that_changes_leaves_the_moments(runs: Runs, rule: str) -> None:
    """Moments go on over changes of the rate."""
    made = optimizer(rule, beta1=0.5, beta2=0.75, epsilon=0.125)

    runs.compare("linear", replace(STEPS, learning_rate=RATES["step"], optimizer=made))


def test_a_rate_holds_until_the_scheduler_steps(runs: Runs) -> None:
    """Runs without a step of the scheduler between them train at one rate, and then at the next."""
    driver, net = runs.driver, nets.mlp()
    config = counted(1, 2, 1, steps=3, optimizer=optimizer("sgd"))
    config = replace(config, learning_rate=learning_rate("piecewise", boundaries=(1,), values=(0.0, 0.25)))
    data, weights = nets.distinct_micro_batches(net, config), []
    with driver.build(net, config) as made:
        compiled, run = driver.compiled_for(made, driver.strategy(config))
        for step in range(3):
            run(made.feed(data, step))
            compiled._backend.weights_to_host()
            weights.append(made.weights())
            if step == 1:
                made.rate.step()
    start: Any = net.initial_weights(config.seed)

    for name, value in start.items():
        check.identical(actual=weights[0][name], expected=value, what=f"{name} at a rate of 0")
        check.identical(actual=weights[1][name], expected=value, what=f"{name} at a rate of 0 still")
    assert all(not np.array_equal(weights[2][name], value) for name, value in start.items())
