"""Every net trains as the oracle says, however it is cut into stages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ipu_conformance import check

from ...training import NETS, Runs, configured, cut, cuts, expected, tolerance, uncut
from .config import FACTORS, counted

SCHEDULES = ("grouped", "interleaved", "sequential")

pytestmark = pytest.mark.ipus(2)

GROUPED, SEQUENTIAL = ("grouped", 3, counted(2, 6, 1)), ("sequential", 4, counted(2, 3, 1))
CUTS = [
    *cuts(["convnet"], [GROUPED]),
    *cuts(["residual"], [GROUPED, SEQUENTIAL]),
    # The tolerance of running statistics counts no partial sums, which larger micro-batches would show.
    *cuts(
        ["bn_convnet"],
        [
            ("interleaved", 2, counted(3, 4, 1, micro_batch=2)),
            ("sequential", 4, counted(2, 3, 1, micro_batch=2)),
        ],
    ),
]
"""Nets in stages; the factors of a row, but for the size of a micro-batch, differ from one another."""


@pytest.mark.parametrize("name", NETS)
def test_a_net_trains_as_specified(runs: Runs, name: str) -> None:
    """On one IPU a replica, with accumulation and several updates in an execution, all that is seen is the oracle's."""
    runs.compare(name, FACTORS)


@pytest.mark.parametrize(("name", "config"), CUTS)
def test_a_cut_net_trains_as_specified(runs: Runs, name: str, config: Any) -> None:
    """Pipelined nets give the oracle's losses, outputs, weights and statistics."""
    runs.compare(name, config)


REPLICATED = counted(4, 3, 2)
MIXED = {schedule: cut("mlp", counted(3, 8, 2), 4, schedule) for schedule in SCHEDULES}


@pytest.mark.parametrize("config", configured(MIXED))
def test_four_stages_eight_accumulated_two_replicas(runs: Runs, config: Any) -> None:
    """The configuration in which everything is mixed gives the oracle's run under every schedule."""
    run = runs.compare("mlp", config)

    assert run.updates == config.device_iterations
    assert [losses.shape for losses in run.losses] == [(24, 2)]
    assert [outputs.shape for outputs in run.outputs or ()] == [(24, 2, 4, 5)]


@pytest.mark.parametrize("config", configured(MIXED))
def test_the_optimizer_of_a_pipeline_steps_once_a_run(runs: Runs, config: Any) -> None:
    """The velocity after all runs of the pipeline is the oracle's."""
    runs.compare_state("mlp", config)


@pytest.mark.emulator
@pytest.mark.parametrize("config", configured({"single": REPLICATED, **MIXED}))
def test_replicas_hold_identical_weights(runs: Runs, config: Any) -> None:
    """After the last update every replica holds the same bits."""
    check.replicas_identical(runs.train("mlp", config).weights_by_replica, step=config.steps)


@pytest.mark.parametrize("config", configured(MIXED))
def test_a_cut_changes_no_bit(runs: Runs, config: Any) -> None:
    """Under every schedule a pipeline leaves the bits of the model on one IPU behind."""
    check.runs_identical(actual=runs.train("mlp", config), expected=runs.train("mlp", uncut(config)))


@pytest.mark.parametrize("config", configured({"single": REPLICATED, **MIXED}))
def test_losses_come_back_in_the_order_of_the_feed(runs: Runs, config: Any) -> None:
    """The losses of all micro-batches stand in the order [update, accumulation, replica]."""
    runs.compare_order("mlp", config)


LAST = {"single": REPLICATED, "plain": counted(5, 1, 1)}


@pytest.mark.parametrize("config", configured(LAST))
def test_synchronous_callbacks_see_the_last_step(runs: Runs, config: Any) -> None:
    """What callbacks are shown of an execution is its last step, and how they are called changes no bit."""
    last = runs.train("mlp", replace(config, output_mode="final"))
    every = runs.train("mlp", config)

    check.identical(actual=last.losses[0], expected=every.losses[0][-1], what="the losses of the last step")
    check.runs_identical(actual=last, expected=every, fields=["weights"])


REDUCED = {
    method: replace(cut("mlp", counted(3, 4, 1), 2, "interleaved"), accumulation_reduction=method)
    for method in ("mean", "running_mean")
}


@pytest.mark.parametrize("config", configured(REDUCED))
def test_gradients_are_reduced_as_asked(runs: Runs, config: Any) -> None:
    """Micro-batches of a pipeline are averaged in one of two ways where they are not added up."""
    runs.compare("mlp", config)


STEPS = counted(2, 3, 1, steps=3)


@pytest.mark.parametrize("steps", range(1, STEPS.steps + 1))
def test_each_fit_goes_on_where_the_last_one_ended(runs: Runs, steps: int) -> None:
    """Weights and the optimizer's state are kept from one fit to the next."""
    weights = (runs.train("mlp", STEPS).weights_by_step or ())[steps - 1]

    for name, value in (expected("mlp", STEPS, steps).weights or {}).items():
        allowed = tolerance("mlp", STEPS, steps).weights[name]
        check.close(actual=weights[name], expected=value, tolerance=allowed, what=f"{name} after fit {steps}")


@pytest.mark.ipus(1)
@pytest.mark.parametrize("name", ["mlp", "bn_convnet", "residual"])
def test_stock_keras_trains_the_same(runs: Runs, name: str) -> None:
    """One IPU without accumulation learns what the same model learns on the host, without any IPU."""
    config = counted(3, 1, 1, steps=2)

    runs.compare_trainings(name, config, runs.native(name, config))


LARGE = {"mlp": FACTORS, "tied_weights": FACTORS, "mlp-replicated": REPLICATED}


@pytest.mark.parametrize("way", LARGE)
def test_stock_keras_trains_the_same_on_one_large_batch(runs: Runs, way: str) -> None:
    """Accumulation on replicas learns what a large batch does on the host, whose loss has their weight."""
    name, config = way.split("-")[0], LARGE[way]

    runs.compare_trainings(name, config, runs.native(name, config))


INFERENCES = {
    "single": counted(5, 1, 3, training=False),
    "grouped": cut("mlp", counted(4, 1, 3, training=False), 2),
    "interleaved": cut("mlp", counted(6, 1, 2, training=False), 3, "interleaved"),
    "sequential": cut("mlp", counted(5, 1, 2, training=False), 3, "sequential"),
}


@pytest.mark.parametrize("config", configured(INFERENCES))
def test_a_net_infers_as_specified(runs: Runs, config: Any) -> None:
    """Without training every micro-batch gives the oracle's output, in its place."""
    runs.compare_inference("mlp", config)


@pytest.mark.ipus(8)
def test_inference_uses_the_running_statistics(runs: Runs) -> None:
    """Batch norm does not look at the micro-batch when nothing is trained."""
    runs.compare_inference("bn_convnet", cut("bn_convnet", INFERENCES["grouped"], 2))
