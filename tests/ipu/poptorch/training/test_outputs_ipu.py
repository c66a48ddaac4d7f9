"""Output modes: what a call returns of the micro-batches that it has seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ...training import Runs, cut, ipus
from .config import FACTORS

pytestmark = ipus(FACTORS)


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
    config = replace(cut("mlp", FACTORS, stages), output_mode=mode, output_period=period)

    runs.compare("mlp", config)
