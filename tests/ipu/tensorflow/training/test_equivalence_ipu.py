"""What callbacks of Keras see of an execution changes nothing that is learned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ipu_conformance import check

from ...training import Runs, configured
from .config import counted

LAST = {"single": counted(4, 3, 2), "plain": counted(5, 1, 1)}


@pytest.mark.parametrize("config", configured(LAST))
def test_synchronous_callbacks_see_the_last_step(runs: Runs, config: Any) -> None:
    """What callbacks are shown of an execution is its last step, and how they are called changes no bit."""
    last = runs.train("mlp", replace(config, output_mode="final"))
    every = runs.train("mlp", config)

    check.identical(actual=last.losses[0], expected=every.losses[0][-1], what="the losses of the last step")
    check.runs_identical(actual=last, expected=every, fields=["weights"])
    check.equal(actual=every.updates, expected=config.device_iterations, what="the number of updates")
