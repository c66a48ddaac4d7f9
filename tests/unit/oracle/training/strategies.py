"""Strategies for configurations of runs."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ipu_conformance.run import CHOICES, OPTIMIZERS, SCHEDULES, RunConfig, learning_rate, optimizer


@st.composite
def configs(draw: Any) -> RunConfig:
    """Any valid configuration with small factors."""
    train = draw(st.booleans())
    iterations = draw(st.integers(1, 4))
    accumulation = draw(st.integers(1, 3)) if train else 1
    layout = draw(st.sampled_from(CHOICES["output_layout"]))
    modes = {"poptorch": CHOICES["output_mode"], "paddle": ("all",), "tensorflow": ("all", "final", "sum")}[layout]
    mode = draw(st.sampled_from(modes))
    periods = [n for n in range(1, iterations * accumulation + 1) if iterations * accumulation % n == 0]
    return RunConfig(
        device_iterations=iterations,
        gradient_accumulation=accumulation,
        replicas=draw(st.integers(1, 3)),
        micro_batch=draw(st.integers(1, 3)),
        stages=tuple(sorted(draw(st.sampled_from([(), (0, 0, 1), (0, 1, 2)])))),
        schedule=draw(st.sampled_from(CHOICES["schedule"])),
        recompute=draw(st.booleans()),
        optimizer=optimizer(draw(st.sampled_from(sorted(OPTIMIZERS)))),
        learning_rate=learning_rate(draw(st.sampled_from(sorted(SCHEDULES)))),
        accumulation_reduction=draw(st.sampled_from(CHOICES["accumulation_reduction"])),
        replica_reduction=draw(st.sampled_from(CHOICES["replica_reduction"])),
        loss_scale=draw(st.sampled_from([1.0, 2.0, 0.5])),
        clip_norm=draw(st.sampled_from([None, 1.0])),
        output_layout=layout,
        output_mode=mode,
        training=train,
        output_period=draw(st.sampled_from(periods)) if mode == "every_n" else 1,
    )
