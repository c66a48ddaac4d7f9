"""Every optimizer takes the oracle's steps and leaves the oracle's state, while its learning rate changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ipu_conformance import check, nets
from ipu_conformance.run import learning_rate, optimizer

from ...training import Runs, cut, optimizer_state
from .config import counted

STEPS = counted(1, 2, 1, steps=3, learning_rate=learning_rate("step", base=0.0625, size=1, gamma=0.5))
"""The rate is halved after every step."""

# Settings are exact in float32, and epsilon is large, so that no gradient is too small for its root: rounding errors
# stay in proportion to the step.
BETAS = {"beta1": 0.875, "beta2": 0.96875, "epsilon": 0.0625}
SHORT = {"beta1": 0.5, "beta2": 0.75, "epsilon": 0.125}
SQUARES = {"alpha": 0.75, "epsilon": 0.0625, "epsilon_inside": True, "rate_in_velocity": True}
RULES = {
    "sgd": optimizer("sgd"),
    "sgd-decay": optimizer("sgd", weight_decay=0.125),
    "momentum": optimizer("sgd", momentum=0.75),
    "momentum-decay": optimizer("sgd", momentum=0.5, weight_decay=0.125),
    "adam": optimizer("adam", **BETAS),
    "adam-betas": optimizer("adam", **SHORT),
    "adam-decay": optimizer("adam", weight_decay=0.125, **BETAS),
    "adamw": optimizer("adamw", weight_decay=0.125, **BETAS),
    "adamw-betas": optimizer("adamw", weight_decay=0.25, **SHORT),
    "adamax": optimizer("adamax", epsilon_at="norm", **BETAS),
    "adamax-decay": optimizer("adamax", epsilon_at="norm", weight_decay=0.125, **SHORT),
    "lamb": optimizer("lamb", weight_decay=0.0, **BETAS),
    "lamb-decay": optimizer("lamb", weight_decay=0.125, **SHORT),
    "adadelta": optimizer("adadelta", rho=0.75, epsilon=0.0625),
    "adadelta-decay": optimizer("adadelta", rho=0.5, epsilon=0.0625, weight_decay=0.125),
    "adagrad": optimizer("adagrad", epsilon=0.0625),
    "adagrad-decay": optimizer("adagrad", epsilon=0.0625, initial=0.25, weight_decay=0.125),
    "rmsprop": optimizer("rmsprop", **SQUARES),
    "rmsprop-momentum": optimizer("rmsprop", momentum=0.5, **SQUARES),
    "rmsprop-centred": optimizer("rmsprop", centred=True, **SQUARES),
    "rmsprop-all": optimizer("rmsprop", centred=True, momentum=0.5, weight_decay=0.125, **SQUARES),
}
STATEFUL = [rule for rule in RULES if not rule.startswith("sgd")]
COUNTING = ["adam", "adamw", "adamax", "lamb"]

pytestmark = pytest.mark.ipus(4)


@pytest.mark.parametrize("rule", RULES)
def test_an_optimizer_steps_as_specified(runs: Runs, rule: str) -> None:
    """Weights and losses of three runs are the oracle's; state is kept from run to run."""
    runs.compare("mlp", replace(STEPS, optimizer=RULES[rule]))


@pytest.mark.parametrize("rule", STATEFUL)
def test_the_state_comes_home_with_the_weights(runs: Runs, rule: str) -> None:
    """Under Paddle's own names the host's scope holds the oracle's state after weights_to_host."""
    config = replace(STEPS, optimizer=RULES[rule])
    held = runs.train("mlp", config).optimizer_state or {}
    expected, allowed = optimizer_state("mlp", config)

    assert set(held) == {state for state, _ in expected}
    for (state, weight), value in expected.items():
        check.close(
            actual=held[state][weight],
            expected=value,
            tolerance=allowed[state, weight],
            what=f"{weight}'s {state}",
        )


@pytest.mark.parametrize("rule", COUNTING)
def test_the_power_of_the_first_beta_becomes_the_count_of_updates(runs: Runs, rule: str) -> None:
    """After compilation beta1_pow_acc holds how often the weights were updated."""
    driver, net = runs.driver, nets.mlp()
    config = replace(STEPS, optimizer=RULES[rule], device_iterations=3, steps=2, replicas=2)
    data = nets.distinct_micro_batches(net, config)
    with driver.build(net, config) as made:
        compiled, run = driver.compiled_for(made, driver.strategy(config))
        for step in range(config.steps):
            run(made.feed(data, step))
        compiled._backend.weights_to_host()
        counts = {weight.name: made.read(f"{weight.name}_beta1_pow_acc_0").tolist() for weight in net.weights}

    assert counts == {weight.name: [6.0] for weight in net.weights}


@pytest.mark.ipus(16)
@pytest.mark.parametrize("rule", ["momentum", "adam-decay", "adamw", "lamb-decay", "rmsprop-all"])
@pytest.mark.parametrize("kind", ["pipelined", "sharded"])
def test_stages_keep_their_own_state(runs: Runs, kind: str, rule: str) -> None:
    """A net in stages, each with the state of its own weights, is updated as a whole one is."""
    config = replace(STEPS, optimizer=RULES[rule], gradient_accumulation=5, steps=2, replicas=2)

    runs.compare("tied_weights", cut("tied_weights", config, 3, kind))


@pytest.mark.parametrize("rule", ["momentum", "adam", "adamw", "rmsprop"])
def test_several_batches_of_a_step_move_the_state_several_times(runs: Runs, rule: str) -> None:
    """Three updates in one run, at one rate, are the oracle's."""
    runs.compare("mlp", replace(STEPS, optimizer=RULES[rule], device_iterations=3, gradient_accumulation=1, steps=2))
