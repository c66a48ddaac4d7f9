"""Replicas: what each is fed, how their gradients meet, and that they never drift apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ipu_conformance import check

from ...training import Runs, cut, ipus, reduced
from .config import FACTORS, counts

pytestmark = ipus(FACTORS)

COUNTS = ((1, 2, 3), (1, 3, 2), (2, 1, 3), (3, 1, 2), (2, 3, 1), (3, 2, 1), (2, 3, 5), (5, 2, 3))


@pytest.mark.parametrize("config", counts(*COUNTS))
@pytest.mark.parametrize("name", ["mlp", "tied_weights"])
def test_any_counts_train_as_specified(runs: Runs, name: str, config: Any) -> None:
    """Device iterations, accumulation and replicas that all differ give the oracle's run."""
    runs.compare(name, config)


@pytest.mark.emulator
@pytest.mark.parametrize("config", counts((1, 2, 3), (3, 1, 2), (2, 3, 5)))
@pytest.mark.parametrize("name", ["mlp", "bn_convnet"])
def test_replicas_hold_identical_weights(runs: Runs, name: str, config: Any) -> None:
    """After an update every replica holds the same bits."""
    check.replicas_identical(runs.train(name, config).weights_by_replica, step=config.steps)


@pytest.mark.emulator
@pytest.mark.ipus(16)
@pytest.mark.parametrize("strategy", ["pipelined", "sharded"])
def test_cut_replicas_hold_identical_weights(runs: Runs, strategy: str) -> None:
    """Replicas of several IPUs each hold the same bits too."""
    run = runs.train("mlp", cut("mlp", FACTORS, 3, strategy))

    check.replicas_identical(run.weights_by_replica, step=FACTORS.steps)


@pytest.mark.emulator
def test_the_user_reads_the_weights_of_the_device(runs: Runs) -> None:
    """What the host's model holds after training is what every replica holds, bit for bit."""
    runs.compare_replicas_with_host("mlp", replace(FACTORS, gradient_accumulation=2))


@pytest.mark.parametrize("config", counts((1, 2, 3), (2, 1, 3), (3, 4, 2), (1, 2, 5)))
@pytest.mark.parametrize("name", ["mlp", "convnet"])
def test_replicas_are_worth_accumulation(runs: Runs, name: str, config: Any) -> None:
    """R replicas that accumulate G micro-batches train as one that accumulates R x G."""
    alone = replace(config, replicas=1, gradient_accumulation=config.replicas * config.gradient_accumulation)

    runs.compare_trainings(name, config, runs.train(name, alone))


@pytest.mark.ipus(16)
@pytest.mark.parametrize("stages", [1, 3], ids=["single", "pipelined"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name", ["mlp", "tied_weights"])
def test_gradients_are_reduced_as_asked(runs: Runs, name: str, reduction: str, stages: int) -> None:
    """Mean and sum over micro-batches and replicas are two different trainings, each as specified."""
    runs.compare(name, cut(name, reduced(FACTORS, reduction, 0.03125), stages))


@pytest.mark.parametrize("stages", [1, pytest.param(2, marks=ipus(cut("mlp", FACTORS, 2)))])
def test_weights_are_updated_once_a_device_iteration(runs: Runs, stages: int) -> None:
    """One call of three device iterations leaves the bits of three calls of one."""
    together = replace(cut("mlp", FACTORS, stages), device_iterations=3)
    apart = replace(together, device_iterations=1, steps=3)

    check.runs_identical(actual=runs.train("mlp", together), expected=runs.train("mlp", apart), fields=["weights"])


def test_statistics_are_those_of_each_replica_s_own_micro_batches(runs: Runs) -> None:
    """Batch norm normalises a micro-batch by itself, and a running mean follows the micro-batches of one replica."""
    runs.compare_statistics(replace(FACTORS, device_iterations=1, gradient_accumulation=2))
