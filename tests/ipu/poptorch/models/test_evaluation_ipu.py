"""Inference: outputs are the oracle's in every mode, and a model that was trained is evaluated with what it learned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ipu_conformance.run import RunConfig

from ...training import Runs, configured

EVALUATION = RunConfig(device_iterations=5, replicas=3, training=False)


MODES = {"all": ("all", 1), "every-5": ("every_n", 5), "final": ("final", 1), "sum": ("sum", 1)}
SELECTED = {
    word: replace(EVALUATION, output_mode=mode, output_period=period, steps=2) for word, (mode, period) in MODES.items()
}


@pytest.mark.parametrize("config", configured(SELECTED))
def test_outputs_come_back_as_the_mode_says(runs: Runs, config: Any) -> None:
    """Each mode returns its entries with the specified shape, call after call."""
    runs.compare_inference("mlp", config)
