"""Replicas: what each is fed, how their gradients meet, and that they never drift apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ipu_conformance import check
from ipu_conformance.run import learning_rate

from ...training import Runs, cut, ipus
from .config import FACTORS, counted, counts

pytestmark = ipus(FACTORS)


@pytest.mark.parametrize("config", counts((1, 2, 3), (2, 1, 3), (3, 2, 5)))
@pytest.mark.parametrize("name", ["mlp", "tied_weights"])
def test_any_counts_train_as_specified(runs: Runs, name: str, config: Any) -> None:
    """Batches per step, accumulation and replicas that all differ give the oracle's run."""
    runs.compare(name, config)


@pytest.mark.emulator
@pytest.mark.parametrize("config", counts((1, 2, 3), (2, 1, 3)))
@pytest.mark.parametrize("name", ["mlp", "bn_convnet"])
def test_replicas_hold_identical_weights(runs: Runs, name: str, config: Any) -> None:
    """After an update every replica holds the same bits."""
    check.replicas_identical(runs.train(name, config).weights_by_replica, step=config.steps)


@pytest.mark.emulator
@pytest.mark.ipus(16)
@pytest.mark.parametrize("kind", ["pipelined", "sharded"])
def test_cut_replicas_hold_identical_weights(runs: Runs, kind: str) -> None:
    """Replicas of several IPUs each hold the same bits too."""
    run = runs.train("mlp", cut("mlp", counted(1, 5, 2), 3, kind))

    check.replicas_identical(run.weights_by_replica, step=1)


@pytest.mark.emulator
def test_the_host_reads_the_weights_of_the_device(runs: Runs) -> None:
    """What the host's scope holds after weights_to_host is what every replica holds, bit for bit."""
    runs.compare_replicas_with_host("mlp", counted(1, 2, 3))


@pytest.mark.parametrize("config", counts((1, 2, 3), (2, 1, 3)))
@pytest.mark.parametrize("name", ["mlp", "convnet"])
def test_replicas_are_worth_accumulation(runs: Runs, name: str, config: Any) -> None:
    """R replicas that accumulate G micro-batches learn what one that accumulates R x G learns."""
    alone = replace(config, replicas=1, gradient_accumulation=config.replicas * config.gradient_accumulation)

    runs.compare_trainings(name, config, runs.train(name, alone), ["weights"])


@pytest.mark.ipus(16)
@pytest.mark.parametrize("stages", [1, 3], ids=["single", "pipelined"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name", ["mlp", "tied_weights"])
def test_gradients_are_reduced_as_asked(runs: Runs, name: str, reduction: str, stages: int) -> None:
    """The option for the type of reduction makes a mean or a sum over micro-batches and replicas, as specified."""
    gentle = learning_rate(base=0.03125)
    config = counted(1, 5, 2, learning_rate=gentle, accumulation_reduction=reduction, replica_reduction=reduction)

    runs.compare(name, cut(name, config, stages))


def test_statistics_are_those_of_each_replica_s_own_micro_batches(runs: Runs) -> None:
    """Batch norm normalises a micro-batch by itself, and the host reads the running means of one replica."""
    runs.compare_statistics(counted(1, 2, 3))
