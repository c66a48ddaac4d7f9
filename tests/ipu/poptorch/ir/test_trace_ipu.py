"""What the device executes is what was planned; only the emulator shows it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ipu_conformance import check
from ipu_conformance.targets import Inspector

from ...training import Runs, configured, cut, inference
from ..training.config import FACTORS

pytestmark = pytest.mark.emulator

PLANS = {
    "single": FACTORS,
    **{f"pipelined-{stages}": cut("mlp", FACTORS, stages) for stages in (2, 3, 4)},
    **{f"sharded-{stages}": cut("mlp", FACTORS, stages, "sharded") for stages in (2, 3, 4)},
    "returning": replace(cut("mlp", FACTORS, 3), devices=(0, 1, 0)),
}


@pytest.mark.parametrize("config", configured(PLANS))
def test_training_executes_its_plan(runs: Runs, inspector: Inspector, config: Any) -> None:
    """The trace of a call holds exactly the slots of its plan, in order, for every replica."""
    check.trace_equals_plan(trace=runs.train("mlp", config).trace or (), plan=inspector.plan(config) or ())


@pytest.mark.parametrize("config", configured({word: inference(config) for word, config in PLANS.items()}))
def test_inference_executes_its_plan(runs: Runs, inspector: Inspector, config: Any) -> None:
    """Inference goes forward only, and a pipeline stays full over all device iterations."""
    check.trace_equals_plan(trace=runs.infer("mlp", config).trace or (), plan=inspector.plan(config) or ())
