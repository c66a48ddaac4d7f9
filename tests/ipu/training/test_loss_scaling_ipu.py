"""Loss scaling: gradients are scaled on their way and unscaled before the update, so that it cancels."""

from __future__ import annotations

from dataclasses import replace

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from .frame import Runs, net_of
from .table import RULES, each, row, table
from .tiny import PAIR, SAMPLES

SCALED = table(
    *(row("mlp", (1, 3, 2), rule, loss_scale=64.0, steps=2) for rule in RULES),
    row("residual", (2, 6, 1), "momentum", "pipelined-3", loss_scale=64.0),
    row("bn_convnet", (1, 3, 2), "adam", "sharded-3", loss_scale=64.0),
)


@each(SCALED)
def test_a_power_of_two_cancels_to_the_bit(runs: Runs, name: str, config: RunConfig) -> None:
    """A power of two as the loss scale changes no bit of losses, outputs and weights."""
    check.runs_identical(
        actual=runs.train(name, config), expected=runs.train(name, replace(config, loss_scale=1.0)), net=net_of(name)
    )


ODD = table(
    *(
        row("mlp", (1, 3, 2), rule, word=f"{scale:g}", loss_scale=scale)
        for rule, scale in (("momentum", 0.25), ("momentum", 3.0), ("adam", 1000.0), ("lamb", 3.0), ("rmsprop", 3.0))
    ),
    row("residual", (2, 6, 1), "momentum", "pipelined-3", loss_scale=3.0),
    row("tied_weights", (1, 2, 3), "adamw", "sharded-4", loss_scale=1000.0),
    row("mlp", (1, 3, 2), "momentum", word="clipped-16", loss_scale=16.0, clip_norm=0.25),
    row("mlp", (1, 3, 2), "adam", word="clipped-3", loss_scale=3.0, clip_norm=0.25),
    row("mlp", (2, 5, 1), "momentum", "pipelined-3", word="clipped-3", loss_scale=3.0, clip_norm=0.25),
    # Neither adaptive nor clipped: both would hide a scale that is left over.
    row(PAIR, (3, 4, 5), "momentum", loss_scale=3.0, steps=3, micro_batch=SAMPLES),
)


@each(ODD)
def test_any_scale_trains_as_specified(runs: Runs, name: str, config: RunConfig) -> None:
    """Losses come back unscaled, clipping and the optimizer see unscaled gradients, in every stage."""
    runs.compare(name, config, ["losses", "weights"])
