"""Weight decay: part of the gradient as a regularizer, apart from it for AdamW and Lamb."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ipu_conformance import check, nets
from ipu_conformance.run import learning_rate, optimizer

from ...training import Runs, cut, ipus
from .config import FACTORS, counted

pytestmark = ipus(FACTORS)

# Settings are exact in float32, and epsilon is large, so that rounding errors stay in proportion to the step.
BETAS = {"beta1": 0.5, "beta2": 0.75, "epsilon": 0.125}
RULES = {
    "sgd": optimizer("sgd", weight_decay=0.5),
    "momentum": optimizer("sgd", momentum=0.75, weight_decay=0.5),
    "adam": optimizer("adam", weight_decay=0.5, **BETAS),
    "adamw": optimizer("adamw", weight_decay=0.5, **BETAS),
    "lamb": optimizer("lamb", weight_decay=0.5, **BETAS),
}
GENTLE = counted(1, 2, 3, learning_rate=learning_rate(base=0.0625))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["convnet", "tied_weights"])
def test_weights_decay_as_specified(runs: Runs, name: str, rule: str) -> None:
    """Decay is applied once an update, to every weight, and a weight of two layers decays once."""
    runs.compare(name, replace(GENTLE, optimizer=RULES[rule]))


@pytest.mark.ipus(16)
@pytest.mark.parametrize("rule", RULES)
def test_stages_decay_their_own_weights(runs: Runs, rule: str) -> None:
    """A net in three stages decays as a whole one does."""
    config = replace(GENTLE, optimizer=RULES[rule], gradient_accumulation=5, replicas=1)

    runs.compare("mlp", cut("mlp", config, 3))


@pytest.mark.ipus(1)
@pytest.mark.parametrize("rule", ["sgd", "adamw"])
def test_nothing_decays_without_a_rate(runs: Runs, rule: str) -> None:
    """At a rate of 0 every weight keeps its bits, however large the decay."""
    config = counted(1, 2, 1, optimizer=RULES[rule], learning_rate=learning_rate(base=0.0))
    weights = runs.train("mlp", config).weights or {}

    for name, value in nets.mlp().initial_weights(config.seed).items():
        check.identical(actual=weights[name], expected=value, what=name)


@pytest.mark.ipus(1)
def test_decay_makes_a_difference(runs: Runs) -> None:
    """The decay of these cases changes every weight, and coupled decay differs from decoupled."""
    free, coupled, apart = (
        runs.train("mlp", replace(GENTLE, optimizer=rule)).weights or {}
        for rule in (optimizer("adam", **BETAS), RULES["adam"], RULES["adamw"])
    )

    for name in free:
        assert not np.array_equal(free[name], coupled[name])
        assert not np.array_equal(coupled[name], apart[name])
