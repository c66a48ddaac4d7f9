"""Every optimizer, of torch and of poptorch, takes the oracle's steps while its learning rate changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ipu_conformance import check, nets
from ipu_conformance.nets import distinct_micro_batches
from ipu_conformance.run import RunConfig, learning_rate, optimizer

from ...training import Runs, cut, ipus

STEPS = RunConfig(
    device_iterations=1,
    gradient_accumulation=2,
    replicas=3,
    steps=4,
    learning_rate=learning_rate("step", base=0.0625, size=1, gamma=0.5),
)
"""The rate is halved before every step but the first, each time by setOptimizer."""

pytestmark = ipus(STEPS)

# Epsilon is large so that no gradient is too small for its root: rounding errors stay in proportion to the step.
RULES = {
    "sgd": optimizer("sgd"),
    "sgd-momentum": optimizer("sgd", momentum=0.75),
    "sgd-dampening": optimizer("sgd", momentum=0.75, dampening=0.5),
    "sgd-nesterov": optimizer("sgd", momentum=0.75, nesterov=True),
    "sgd-decay": optimizer("sgd", weight_decay=0.125),
    "sgd-momentum-decay": optimizer("sgd", momentum=0.5, weight_decay=0.125),
    "adam": optimizer("adam", epsilon=0.0625),
    "adam-betas": optimizer("adam", beta1=0.5, beta2=0.75, epsilon=0.0625),
    "adam-decay": optimizer("adam", epsilon=0.0625, weight_decay=0.125),
    "adamw": optimizer("adamw", epsilon=0.0625, weight_decay=0.125),
    "adamw-betas": optimizer("adamw", beta1=0.5, beta2=0.75, epsilon=0.0625),
    "rmsprop": optimizer("rmsprop", alpha=0.75, epsilon=0.0625),
    "rmsprop-momentum": optimizer("rmsprop", alpha=0.75, epsilon=0.0625, momentum=0.5),
    "rmsprop-centred": optimizer("rmsprop", alpha=0.75, epsilon=0.0625, centred=True),
    "rmsprop-all": optimizer("rmsprop", alpha=0.75, epsilon=0.0625, centred=True, momentum=0.5, weight_decay=0.125),
    "lamb": optimizer("lamb", epsilon=0.0625, weight_decay=0.125),
    "lamb-betas": optimizer("lamb", beta1=0.5, beta2=0.75, epsilon=0.0625),
}


@pytest.mark.parametrize("rule", RULES)
def test_an_optimizer_of_poptorch_steps_as_specified(runs: Runs, rule: str) -> None:
    """The vendor's own classes take the same steps."""
    runs.compare("mlp", replace(STEPS, optimizer=RULES[rule]), family="poptorch")


@pytest.mark.parametrize("stages", [1, pytest.param(3, marks=ipus(replace(STEPS, stages=nets.mlp().cut(3))))])
def test_a_rate_applies_when_it_is_set(runs: Runs, stages: int) -> None:
    """A rate that changes from 0 on the host changes nothing on the device until setOptimizer is called."""
    driver = runs.driver
    net, config = nets.mlp(), cut("mlp", replace(STEPS, steps=2, gradient_accumulation=5), stages)
    data = distinct_micro_batches(net, config)
    weights = {}
    for told in (False, True):
        module = driver.NetModule(net, config)
        optimizer = driver.optimizer(config, module.parameters(), 0.0)
        trainer = driver.poptorch.trainingModel(module, driver.options(config), optimizer)
        trainer(*driver.tensors(data, 0, config))
        optimizer.param_groups[0]["lr"] = 0.25
        if told:
            trainer.setOptimizer(optimizer)
        trainer(*driver.tensors(data, 1, config))
        weights[told] = module.weights()
        trainer.destroy()
    start: Any = net.initial_weights(config.seed)

    for name, value in start.items():
        check.identical(actual=weights[False][name], expected=value, what=f"{name} at the old rate of 0")
    changed = [name for name, value in start.items() if (weights[True][name] != value).any()]
    check.equal(actual=changed, expected=list(start), what="the list of the weights that the new rate changes")
