"""A net in stages learns what the whole net learns: a cut changes when things happen, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Tuple

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from .frame import AnyNet, Runs, net_of, uncut
from .table import STAGED, Row, Table, chosen, each, row, table
from .test_precision_ipu import HALF
from .tiny import TOWER


def shared(each: Row) -> bool:
    """Do stages share a weight, whose gradients a cut adds in another order?"""
    uses = [weight for layer in net_of(each.net).layers for weight in layer.weights]
    return len(uses) > len(set(uses))


@each(chosen(STAGED, shared))
def test_a_cut_between_uses_changes_the_order_of_gradients_only(runs: Runs, name: str, config: RunConfig) -> None:
    """Where stages share a weight its gradients may be added in another order, within the tolerance."""
    runs.compare_trainings(name, config, runs.train(name, uncut(config)))


LEAST = table(
    row("mlp", (1, 3, 2), at="pipelined-2"),
    row("mlp", (2, 5, 3), at="pipelined-3"),
    row("mlp", (1, 7, 2), at="pipelined-4"),
    row("mlp", (2, 3, 1), at="interleaved-3"),
    row("bn_convnet", (1, 4, 2), at="interleaved-2"),
    row("residual", (1, 8, 2), at="interleaved-4"),
    row(TOWER, (3, 5, 2), at="interleaved-5"),
)


@each(LEAST)
def test_a_full_pipeline_trains_as_specified(runs: Runs, name: str, config: RunConfig) -> None:
    """The fewest micro-batches that fill a pipeline are enough, under every schedule."""
    runs.compare(name, config)


def on(name: AnyNet, counts: Tuple[int, int, int], schedule: str, devices: Tuple[int, ...]) -> Table:
    """A row whose stages are on these IPUs."""
    rows = row(name, counts, at=f"{schedule}-{len(devices)}")
    numbers = "".join(map(str, devices))
    return {f"{word}-on-{numbers}": Row(name, replace(each.config, devices=devices)) for word, each in rows.items()}


PLACED = table(
    on("mlp", (2, 7, 3), "pipelined", (0, 1, 0)),
    on("mlp", (1, 8, 2), "pipelined", (0, 2, 1, 0)),
    on("bn_convnet", (2, 7, 1), "pipelined", (0, 1, 2, 0)),
    on("mlp", (2, 3, 1), "sharded", (2, 0, 1)),
    on("residual", (1, 2, 3), "sharded", (3, 1, 2, 0)),
)
ORDERS = table(
    row("mlp", (2, 6, 1), "sgd", "pipelined-3"),
    row("mlp", (2, 6, 1), "sgd", "sharded-3"),
    row("residual", (1, 4, 2), "momentum", "pipelined-2"),
    row("residual", (1, 4, 2), "momentum", "sharded-2"),
)
HALVES = chosen(HALF, lambda each: each.config.stages and not shared(each))
WHOLE = {
    **chosen(STAGED, lambda each: not shared(each)),
    **PLACED,
    **ORDERS,
    **{f"half-{word}": each for word, each in HALVES.items()},
}


@each(WHOLE)
def test_a_cut_changes_no_bit(runs: Runs, name: str, config: RunConfig) -> None:
    """Pipelined, sharded and single execution leave the same bits behind, whichever IPU holds which stage.

    A pipeline may return to an IPU, and numbers may be in float16.
    """
    check.runs_identical(actual=runs.train(name, config), expected=runs.train(name, uncut(config)), net=net_of(name))
