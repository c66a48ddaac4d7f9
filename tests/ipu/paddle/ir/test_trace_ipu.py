"""What the device executes is what was planned; only the emulator shows it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ipu_conformance import check
from ipu_conformance.targets import Inspector

from ...training import Runs, configured, cut, inference
from ..training.config import FACTORS, counted

pytestmark = pytest.mark.emulator

PLANS = {
    "single": FACTORS,
    "without-accumulation": counted(3, 1, 2),
    **{f"pipelined-{stages}": cut("mlp", counted(2, 7, 1), stages) for stages in (2, 3, 4)},
    "pipelined-replicated": cut("mlp", counted(2, 7, 3), 4),
    **{f"sharded-{stages}": cut("mlp", counted(2, 5, 1), stages, "sharded") for stages in (2, 3, 4)},
    **{f"streamed-{stages}": replace(cut("mlp", counted(7, 1, 2), stages), update="micro_batch") for stages in (2, 3)},
}


@pytest.mark.parametrize("config", configured(PLANS))
def test_training_executes_its_plan(runs: Runs, inspector: Inspector, config: Any) -> None:
    """The trace of a run holds exactly the slots of its plan, in order, for every replica."""
    check.trace_equals_plan(trace=runs.train("mlp", config).trace or (), plan=inspector.plan(config) or ())


INFERENCES = {word: inference(config) for word, config in PLANS.items() if not word.startswith("streamed")}


@pytest.mark.parametrize("config", configured(INFERENCES))
def test_inference_executes_its_plan(runs: Runs, inspector: Inspector, config: Any) -> None:
    """Inference goes forward only, and a pipeline stays full over all batches of the step."""
    check.trace_equals_plan(trace=runs.infer("mlp", config).trace or (), plan=inspector.plan(config) or ())
