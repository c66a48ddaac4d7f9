"""Output modes: what a call returns of the micro-batches that it has seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ipu_conformance.run import RunConfig

from ...training import Runs, configured, cut
from .config import FACTORS

MODES = {
    "all": ("all", 1),
    "every-2": ("every_n", 2),
    "every-7": ("every_n", 7),
    "final": ("final", 1),
    "sum": ("sum", 1),
}


@pytest.mark.ipus(16)
@pytest.mark.parametrize("stages", [1, 3], ids=["single", "pipelined"])
@pytest.mark.parametrize(("mode", "period"), MODES.values(), ids=list(MODES))
def test_outputs_come_back_as_the_mode_says(runs: Runs, mode: str, period: int, stages: int) -> None:
    """Each output mode returns its entries, in order, with the specified shape, and changes nothing else."""
    runs.compare("mlp", replace(cut("mlp", FACTORS, stages), output_mode=mode, output_period=period))


EVALUATION = RunConfig(device_iterations=5, replicas=3, training=False, steps=2)
INFERENCE = {
    word: replace(EVALUATION, output_mode=mode, output_period=period)
    for word, (mode, period) in {**MODES, "every-5": ("every_n", 5)}.items()
    if not EVALUATION.device_iterations % period
}


@pytest.mark.parametrize("config", configured(INFERENCE))
def test_an_inference_returns_what_the_mode_says(runs: Runs, config: RunConfig) -> None:
    """Each mode returns its entries with the specified shape, call after call."""
    runs.compare_inference("mlp", config)
