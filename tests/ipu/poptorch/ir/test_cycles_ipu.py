"""Cycle counts: what they need, and how they move with the work."""

from __future__ import annotations

from typing import Any

import pytest

from .dumped import MICRO, Setup, network, options_of


def _cycles(poptorch: Any, setup: Setup) -> int:
    import torch

    options = options_of(poptorch, setup).logCycleCount(True)
    net = network(setup.ipus)
    size = MICRO * setup.iterations * setup.accumulation * setup.replicas
    images, labels = torch.zeros(size, 1, 5, 5), torch.zeros(size, dtype=torch.int64)
    if setup.training:
        model = poptorch.trainingModel(net, options, torch.optim.SGD(net.parameters(), lr=0.1))
        model(images, labels)
    else:
        model = poptorch.inferenceModel(net, options)
        model(images)
    return int(model.cycleCount())


def test_a_run_takes_cycles(poptorch: Any) -> None:
    """After a run the count is positive."""
    assert _cycles(poptorch, Setup("one", training=False)) > 0


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


def test_a_sharded_model_has_cycles_too(poptorch: Any) -> None:
    """The count covers models on several IPUs, also when they come back to one."""
    assert _cycles(poptorch, Setup("sharded", ipus=(0, 1, 1, 0), mode="Sharded")) > 0
