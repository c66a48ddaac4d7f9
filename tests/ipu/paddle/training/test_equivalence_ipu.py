"""Every net trains as the oracle says, however it is cut into stages, and the cut changes no bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ipu_conformance import check, nets

from ...training import CUT, NETS, Runs, configured, cut, cuts, inference, ipus, uncut
from .config import FACTORS, counted

CUTS = (
    ("pipelined", 2, counted(1, 3, 4)),
    ("pipelined", 3, counted(2, 5, 1)),
    ("pipelined", 4, counted(2, 7, 1)),
    ("sharded", 3, counted(2, 5, 1)),
)
"""How a net is cut, into how many stages, and a configuration in which all factors differ."""

pytestmark = ipus(FACTORS)


@pytest.mark.parametrize("name", NETS)
def test_a_net_trains_as_specified(runs: Runs, name: str) -> None:
    """On one IPU a replica, with batches per step and accumulation, all that is fetched and learned is the oracle's."""
    runs.compare(name, FACTORS)


@pytest.mark.parametrize(("name", "config"), cuts(CUT, CUTS))
def test_a_cut_net_trains_as_specified(runs: Runs, name: str, config: Any) -> None:
    """Pipelined and sharded nets give the oracle's losses, outputs, weights and statistics."""
    runs.compare(name, config)


@pytest.mark.ipus(8)
@pytest.mark.parametrize("name", CUT)
def test_three_stages_two_batches_seven_accumulated_two_replicas(runs: Runs, name: str) -> None:
    """The configuration in which everything is mixed gives the oracle's run, with every fetch in its place."""
    config = cut(name, counted(2, 7, 2), 3)

    run = runs.compare(name, config)

    assert [losses.shape for losses in run.losses] == [(2, 7, 2, 1)]
    assert [outputs.shape for outputs in run.outputs or ()] == [(2, 7, 2, 2, 5)]


@pytest.mark.parametrize(("name", "config"), cuts(CUT[:-1], CUTS))
def test_a_cut_changes_no_bit(runs: Runs, name: str, config: Any) -> None:
    """Pipelined, sharded and single execution leave the same bits behind."""
    check.runs_identical(actual=runs.train(name, config), expected=runs.train(name, uncut(config)))


@pytest.mark.parametrize(("name", "config"), cuts(["tied_weights"], CUTS))
def test_a_cut_between_uses_of_a_weight_changes_the_order_of_its_gradients_only(
    runs: Runs, name: str, config: Any
) -> None:
    """Where stages share a weight their gradients may be added in another order, which no tolerance notices."""
    runs.compare_trainings(name, config, runs.train(name, uncut(config)))


ORDERS = {"single": FACTORS, "pipelined": cut("mlp", counted(3, 7, 2), 4), "sharded": cut("mlp", FACTORS, 4, "sharded")}


@pytest.mark.parametrize("config", configured(ORDERS))
def test_losses_come_back_in_the_order_of_the_feed(runs: Runs, config: Any) -> None:
    """Read in memory's order the losses stand as [batch of the step, accumulation, replica]."""
    runs.compare_order("mlp", config)


SHAPES = {
    (1, 1, 1): (),
    (2, 1, 1): (2,),
    (1, 3, 1): (3,),
    (1, 1, 4): (4,),
    (2, 3, 1): (3, 2),
    (2, 1, 4): (4, 2),
    (1, 3, 4): (4, 3),
    (2, 3, 4): (4, 3, 2),
}


@pytest.mark.ipus(4)
@pytest.mark.parametrize("factors", SHAPES, ids="D{0[0]}-G{0[1]}-R{0[2]}".format)
def test_a_fetch_names_its_factors_in_front(runs: Runs, factors: Any) -> None:
    """A fetch has the axes (replicas, accumulation, batches per step) that are in use, and a scalar becomes (1,)."""
    run = runs.train("linear", counted(*factors))

    assert run.losses[0].shape == (*SHAPES[factors], 1)
    assert (run.outputs or ())[0].shape == (*SHAPES[factors], 2, 5)


@pytest.mark.ipus(1)
@pytest.mark.parametrize("name", NETS)
def test_the_stock_executor_trains_the_same(runs: Runs, name: str) -> None:
    """One IPU without accumulation learns what the same program learns on the host, without any IPU."""
    config = counted(3, 1, 1, steps=2)

    runs.compare_trainings(name, config, runs.native(name, config))


INFERENCES = {
    "single": inference(counted(5, 1, 3)),
    **{f"{kind}-{stages}": inference(cut("mlp", counted(5, 1, 3), stages, kind)) for kind, stages, _ in CUTS},
}


@pytest.mark.parametrize("config", configured(INFERENCES))
@pytest.mark.parametrize("name", ["mlp", "bn_convnet", "residual"])
def test_a_net_infers_as_specified(runs: Runs, name: str, config: Any) -> None:
    """Without training every micro-batch gives the oracle's output, in its place, and nothing is learned."""
    if config.stages:
        config = replace(config, stages=nets.NETS[name]().cut(config.number_of_stages))
    runs.compare_inference(name, config)


STREAMS = {
    "mlp-2-B5-R3": ("mlp", 2, 5, 3),
    "mlp-3-B7-R2": ("mlp", 3, 7, 2),
    "convnet-3-B5-R1": ("convnet", 3, 5, 1),
    "bn_convnet-2-B3-R4": ("bn_convnet", 2, 3, 4),
    "residual-3-B6-R2": ("residual", 3, 6, 2),
    "mlp-4-B7-R3": ("mlp", 4, 7, 3),
}


@pytest.mark.ipus(16)
@pytest.mark.parametrize(("name", "stages", "batches", "replicas"), STREAMS.values(), ids=list(STREAMS))
def test_a_pipeline_without_accumulation_updates_with_every_micro_batch(
    runs: Runs, name: str, stages: int, batches: int, replicas: int
) -> None:
    """Each stage updates after each backward, while later micro-batches are under way with the weights of before."""
    config = replace(cut(name, counted(batches, 1, replicas), stages), update="micro_batch", steps=2)

    runs.compare(name, config)
