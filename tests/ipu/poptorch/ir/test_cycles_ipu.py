"""Cycle counts: what they need, and how they move with the work."""

from __future__ import annotations

from typing import Any

import pytest

from .dumped import Setup, executor, options_of


def _cycles(poptorch: Any, setup: Setup) -> int:
    model, inputs = executor(setup, options=options_of(poptorch, setup).logCycleCount(True))
    model(*inputs)
    return int(model.cycleCount())


@pytest.mark.parametrize(
    "setup",
    [Setup("inference", training=False), Setup("sharded", ipus=(0, 1, 1, 0), mode="Sharded")],
    ids=str,
)
def test_a_run_takes_cycles(poptorch: Any, setup: Setup) -> None:
    """After a run the count is positive, also for a model on several IPUs that comes back to one."""
    assert _cycles(poptorch, setup) > 0


def test_training_takes_more_cycles_than_inference(poptorch: Any) -> None:
    """The backward pass and the update cost cycles."""
    assert _cycles(poptorch, Setup("training")) > _cycles(poptorch, Setup("inference", training=False))


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_device_iterations_add_cycles(poptorch: Any, training: bool) -> None:
    """Six device iterations take at least three times the cycles of one."""
    one = _cycles(poptorch, Setup("one", training=training))

    assert _cycles(poptorch, Setup("six", training=training, iterations=6)) >= 3 * one


def test_accumulation_adds_cycles(poptorch: Any) -> None:
    """More micro-batches for one update take more cycles."""
    assert _cycles(poptorch, Setup("five", accumulation=5)) > _cycles(poptorch, Setup("one"))
