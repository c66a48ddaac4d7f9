"""Gradient clipping: by the norm of all gradients together, once an update, after they are reduced."""

from __future__ import annotations

from dataclasses import replace

from ipu_conformance import check
from ipu_conformance.run import RunConfig, learning_rate

from .frame import Runs, net_of
from .table import each, row, table
from .tiny import PAIR, SAMPLES, TOWER

LIMIT = 0.25
HALVED = learning_rate("step", base=0.125, size=2, gamma=0.5)
CLIPPED = table(
    row("mlp", (2, 3, 1), "sgd", clip_norm=LIMIT, steps=2),
    row("mlp", (2, 3, 1), "momentum", clip_norm=LIMIT, steps=2),
    row("mlp", (2, 3, 1), "adam", clip_norm=LIMIT, steps=2),
    row("mlp", (2, 3, 1), "adamw", clip_norm=LIMIT, steps=2),
    row("convnet", (1, 2, 3), "momentum", clip_norm=LIMIT),
    row("mlp", (2, 4, 1), "momentum", "pipelined-2", clip_norm=LIMIT),
    row("mlp", (1, 8, 1), "adam", "pipelined-4", clip_norm=LIMIT),
    row(TOWER, (3, 6, 4), "momentum", "pipelined-3", clip_norm=LIMIT, micro_batch=SAMPLES),
    row("tied_weights", (2, 3, 1), "adamw", "sharded-4", clip_norm=LIMIT),
    row("mlp", (2, 3, 1), "momentum", word="tight", clip_norm=0.0625),
    row(PAIR, (3, 4, 5), "adamw", steps=4, clip_norm=0.125, micro_batch=SAMPLES, learning_rate=HALVED),
)


@each(CLIPPED)
def test_gradients_are_clipped_together(runs: Runs, name: str, config: RunConfig) -> None:
    """A norm above the limit shrinks the gradients of all stages alike, after their reduction and before decay."""
    runs.compare(name, config, ["losses", "weights"])


SOME = {word: CLIPPED[word] for word in (list(CLIPPED)[place] for place in (1, 4, 5))}


@each(SOME)
def test_a_limit_above_the_norm_changes_no_bit(runs: Runs, name: str, config: RunConfig) -> None:
    """Gradients below the limit are multiplied by exactly one."""
    check.runs_identical(
        actual=runs.train(name, replace(config, clip_norm=1024.0)),
        expected=runs.train(name, replace(config, clip_norm=None)),
        net=net_of(name),
    )
