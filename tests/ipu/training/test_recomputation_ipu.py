"""Recomputation: a stage that goes forward once more learns what one that keeps its values learns."""

from __future__ import annotations

from dataclasses import replace

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from .frame import Runs, net_of
from .masks import compare_with_masks, mask_net
from .table import STAGED, Row, chosen, counted, cut, each

RECOMPUTED = chosen(STAGED, lambda each: each.config.recompute)


@each(RECOMPUTED)
def test_recomputation_changes_no_bit(runs: Runs, name: str, config: RunConfig) -> None:
    """Losses, outputs and weights have the bits of a run that keeps everything."""
    kept = runs.train(name, replace(config, recompute=False))

    check.runs_identical(actual=runs.train(name, config), expected=kept, net=net_of(name))


DEEP, DROPPING = mask_net(4), mask_net(5, everywhere=True)
DROPPED = {
    "3-stages": Row(DEEP, replace(cut(DEEP, counted(2, 6, 1), 3, "pipelined"), recompute=True)),
    "4-stages": Row(DEEP, replace(cut(DEEP, counted(1, 8, 3), 4, "pipelined"), recompute=True)),
    "5-stages": Row(DROPPING, replace(cut(DROPPING, counted(1, 10, 1), 5, "pipelined"), recompute=True)),
    "2-stages": Row(DEEP, replace(cut(DEEP, counted(3, 4, 2), 2, "pipelined"), recompute=True)),
}


@each(DROPPED)
def test_recomputation_draws_the_same_masks(runs: Runs, name: str, config: RunConfig) -> None:
    """What a recomputed stage drops on the way back is what its outputs dropped on the way forth."""
    compare_with_masks(runs, net_of(name), config)
