"""What is Paddle's own in training: updates inside a pipeline, fetches that name the factors, rates of the host."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ipu_conformance import check, nets
from ipu_conformance.run import learning_rate, optimizer

from ...training import Runs, cut
from .config import counted

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

    check.shape(actual=run.losses[0], expected=(*SHAPES[factors], 1), what="the fetched loss")
    check.shape(actual=(run.outputs or ())[0], expected=(*SHAPES[factors], 2, 5), what="the fetched output")


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


def test_a_rate_holds_until_the_scheduler_steps(runs: Runs) -> None:
    """The host steps the scheduler, and nothing else moves the rate from run to run."""
    driver, net = runs.driver, nets.mlp()
    rate = learning_rate("piecewise", boundaries=(1,), values=(0.0, 0.25))
    config = counted(1, 2, 1, steps=3, optimizer=optimizer("sgd"), learning_rate=rate)
    data, weights = nets.distinct_micro_batches(net, config), []
    with driver.build(net, config) as program:
        compiled, run = driver.compiled_for(program, driver.strategy(config))
        for step in range(3):
            run(program.feed(data, step))
            compiled._backend.weights_to_host()
            weights.append(program.weights())
            if step == 1:
                program.rate.step()

    for name, value in net.initial_weights(config.seed).items():
        check.identical(actual=weights[0][name], expected=value, what=f"{name} at a rate of 0")
        check.identical(actual=weights[1][name], expected=value, what=f"{name} at a rate of 0 still")
        check.differs(actual=weights[2][name], other=value, what=f"{name} at the next rate")
