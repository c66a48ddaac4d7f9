"""Weight sharing: one parameter used by several layers, on one IPU or on several, has one value and one gradient."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ipu_conformance import check
from ipu_conformance.run import learning_rate, optimizer

from ...training import Runs, configured, cut
from .config import counted

CUTS = {
    "single": counted(1, 2, 3),
    "together": cut("tied_weights", counted(3, 5, 1), 2),
    "apart": replace(counted(2, 5, 1), stages=(0, 0, 0, 0, 1, 1, 2), schedule="grouped"),
    "sharded": replace(counted(3, 2, 1), stages=(0, 0, 0, 0, 1, 1, 2), schedule="sequential"),
    "four-stages": cut("tied_weights", counted(1, 7, 2), 4),
}
"""``tied_weights`` uses one weight in its third and its fifth layer; two of the cuts fall between them."""
RULES = {
    "momentum": optimizer("sgd", momentum=0.5, weight_decay=0.125),
    "adam": optimizer("adam", beta1=0.5, beta2=0.75, epsilon=0.125),
    "lamb": optimizer("lamb", beta1=0.5, beta2=0.75, epsilon=0.125, weight_decay=0.125),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("config", configured(CUTS))
def test_a_shared_weight_trains_as_specified(runs: Runs, config: Any, rule: str) -> None:
    """The gradients of all uses are added before one update, whichever stages use the weight."""
    gentle = learning_rate(base=0.0625)

    runs.compare("tied_weights", replace(config, optimizer=RULES[rule], learning_rate=gentle))


@pytest.mark.emulator
@pytest.mark.ipus(16)
def test_replicas_agree_on_a_shared_weight(runs: Runs) -> None:
    """A weight of two stages is the same on every replica, bit for bit."""
    run = runs.train("tied_weights", CUTS["four-stages"])

    check.replicas_identical(run.weights_by_replica, step=1)
