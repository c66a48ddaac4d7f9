"""Gradient accumulation: one update for several micro-batches, a batch of the step at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ipu_conformance import check, nets
from ipu_conformance.run import optimizer

from ...training import Runs, cut, ipus, tolerance
from .config import counted, counts


@pytest.mark.parametrize("config", counts((2, 3, 1), (4, 3, 1)))
@pytest.mark.parametrize("name", ["mlp", "bn_convnet"])
def test_accumulation_trains_as_specified(runs: Runs, name: str, config: Any) -> None:
    """Each batch of the step ends with one update by the mean of its micro-batches' gradients."""
    runs.compare(name, config)


@pytest.mark.parametrize("config", counts((1, 4, 1), (3, 2, 1)))
@pytest.mark.parametrize("name", ["mlp", "convnet", "residual"])
def test_micro_batches_are_worth_a_large_batch(runs: Runs, name: str, config: Any) -> None:
    """The mean over accumulated micro-batches is the gradient of one batch of all of them on the host."""
    check.runs_equivalent(
        actual=runs.train(name, config), expected=runs.native(name, config), tolerance=tolerance(name, config)
    )


@pytest.mark.parametrize("stages", [1, pytest.param(2, marks=ipus(cut("mlp", counted(3, 5, 1), 2)))])
def test_weights_are_updated_once_a_batch_of_the_step(runs: Runs, stages: int) -> None:
    """One run of three batches leaves the bits of three runs of one."""
    together = cut("mlp", counted(3, 5, 1), stages)
    apart = replace(together, device_iterations=1, steps=3)

    check.runs_identical(actual=runs.train("mlp", together), expected=runs.train("mlp", apart), fields=["weights"])


def test_without_accumulation_every_batch_of_the_step_updates(runs: Runs) -> None:
    """One run of four batches leaves the bits of four runs of one."""
    together = counted(4, 1, 1)
    apart = replace(together, device_iterations=1, steps=4)

    check.runs_identical(actual=runs.train("mlp", together), expected=runs.train("mlp", apart), fields=["weights"])


def test_accumulators_begin_anew_after_an_update(runs: Runs) -> None:
    """A second run changes the weights by the gradients of its own micro-batches alone."""
    config = counted(1, 3, 1, steps=2, optimizer=optimizer("sgd"))

    runs.compare("mlp", config)
    first, second = runs.train("mlp", config).weights_by_step or ({}, {})
    assert any(not np.array_equal(first[name], second[name]) for name in first)


LIMITS = {"2-stages": (2, 3), "3-stages": (3, 5), "4-stages": (4, 7)}


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("stages", "least"), LIMITS.values(), ids=list(LIMITS))
def test_a_pipeline_trains_with_just_enough_micro_batches(runs: Runs, stages: int, least: int) -> None:
    """S stages need 2(S-1)+1 accumulated micro-batches, and with as many they train as specified."""
    runs.compare("mlp", cut("mlp", counted(1, least, 1), stages))


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("stages", "least"), LIMITS.values(), ids=list(LIMITS))
def test_a_pipeline_refuses_too_few_micro_batches(runs: Runs, stages: int, least: int) -> None:
    """One micro-batch less than 2(S-1)+1 is an error that names the accumulation factor."""
    driver, net = runs.driver, nets.mlp()
    config = cut("mlp", counted(1, least - 1, 1), stages)

    with driver.build(net, config) as made, pytest.raises(Exception, match="gradient accumulation factor"):
        driver.compiled_for(made, driver.strategy(config))


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("stages", "least"), LIMITS.values(), ids=list(LIMITS))
def test_a_pipeline_without_accumulation_refuses_too_few_batches(runs: Runs, stages: int, least: int) -> None:
    """Without accumulation it is the batches of a step that fill the pipeline."""
    driver, net = runs.driver, nets.mlp()
    config = replace(cut("mlp", counted(least - 1, 1, 1), stages), update="micro_batch")

    with driver.build(net, config) as made, pytest.raises(Exception, match="batchesPerStep"):
        driver.compiled_for(made, driver.strategy(config))
