"""Every net trains as the oracle says, however it is cut into stages, and the cut changes no bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ipu_conformance import check

from ...training import CUT, NETS, SCHEDULES, Runs, cut, cuts, ipus
from .config import FACTORS

CUTS = [(strategy, stages, FACTORS) for strategy in SCHEDULES for stages in (2, 3, 4)]

pytestmark = ipus(FACTORS)


@pytest.mark.parametrize("name", NETS)
def test_a_net_trains_as_specified(runs: Runs, name: str) -> None:
    """On one IPU, with accumulation, replicas and device iterations, losses, outputs and weights are the oracle's."""
    runs.compare(name, FACTORS)


@pytest.mark.parametrize(("name", "config"), cuts(CUT, CUTS))
def test_a_cut_net_trains_as_specified(runs: Runs, name: str, config: Any) -> None:
    """Pipelined and sharded nets give the oracle's losses, outputs, weights and statistics."""
    runs.compare(name, config)


@pytest.mark.parametrize(("name", "config"), cuts(CUT[:-1], CUTS))
def test_a_cut_changes_no_bit(runs: Runs, name: str, config: Any) -> None:
    """Pipelined, sharded and single execution leave the same bits behind."""
    check.runs_identical(actual=runs.train(name, config), expected=runs.train(name, FACTORS))


@pytest.mark.parametrize(("name", "config"), cuts(["tied_weights"], CUTS))
def test_a_cut_between_uses_of_a_weight_changes_the_order_of_its_gradients_only(
    runs: Runs, name: str, config: Any
) -> None:
    """Where stages share a weight their gradients are added in another order, which no tolerance notices."""
    runs.compare_trainings(name, config, runs.train(name, FACTORS))


BACK_AND_FORTH = (("mlp", (0, 1, 0)), ("mlp", (0, 1, 0, 1)), ("bn_convnet", (0, 1, 2, 0)))


@pytest.mark.ipus(8)
@pytest.mark.parametrize(("name", "devices"), BACK_AND_FORTH, ids=["mlp-010", "mlp-0101", "bn_convnet-0120"])
def test_a_pipeline_may_return_to_an_ipu(runs: Runs, name: str, devices: Any) -> None:
    """A stage on an IPU that has one already changes no bit either."""
    config = replace(cut(name, FACTORS, len(devices)), devices=devices)

    check.runs_identical(actual=runs.train(name, config), expected=runs.train(name, FACTORS))


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


@pytest.mark.ipus(16)
@pytest.mark.parametrize("strategy", SCHEDULES)
def test_losses_come_back_in_the_order_of_the_feed(runs: Runs, strategy: str) -> None:
    """The losses of all micro-batches stand in the order [device iteration, accumulation, replica]."""
    runs.compare_order("mlp", cut("mlp", FACTORS, 3, strategy))
