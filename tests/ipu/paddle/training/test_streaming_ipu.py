"""What is Paddle's own in training: updates inside a pipeline, and fetches whose axes name the factors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ipu_conformance import check

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
