"""Dropout: its rate, its scale, and masks that know nothing of one another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ipu_conformance import check
from ipu_conformance.oracle.tolerance.ops import FORMATS, Tolerance
from ipu_conformance.run import RunConfig

from .frame import Runs, net_of
from .masks import RATE, compare_with_masks, kept, mask_net
from .table import Row, counted, cut, each

PLAIN, DEEP = mask_net(), mask_net(4)
DROPPED = {
    "single": Row(PLAIN, counted(2, 3, 4, steps=2)),
    "pipelined-2": Row(DEEP, cut(DEEP, counted(2, 4, 3), 2, "pipelined")),
    "pipelined-4": Row(DEEP, cut(DEEP, counted(2, 8, 1), 4, "pipelined")),
    "sharded-3": Row(DEEP, cut(DEEP, counted(2, 1, 3), 3, "sharded")),
    "small": Row(PLAIN, counted(3, 1, 5, steps=4)),
    "small-pipeline": Row(DEEP, cut(DEEP, counted(1, 6, 1), 3, "pipelined")),
}
SEEDS = (12, 13, 12 + 2**8, 12 + 2**16)
"""All others differ from the first in one bit each: the last, and the first of the next bytes."""
AXES = ("step", "device iteration", "accumulation", "replica")


@each(DROPPED)
def test_masks_are_independent(runs: Runs, name: str, config: RunConfig) -> None:
    """Masks drop at the rate, and are independent from step to step, micro-batch to micro-batch, replica to replica."""
    masks = kept(runs.train(name, config))

    check.dropout_masks(masks=masks, rate=RATE, axes=AXES, what="dropout in training")


@each({"single": DROPPED["single"], "small": DROPPED["small"]})
def test_what_is_kept_is_scaled(runs: Runs, name: str, config: RunConfig) -> None:
    """Before the first update every output is 0 or its input divided by one less each rate."""
    outputs = np.reshape((runs.train(name, config).outputs or ())[0], (config.device_iterations, -1))[0]
    ones = np.ones_like(outputs)
    scaled = ones / (1.0 - RATE)
    allowed = Tolerance(scaled * 4 * FORMATS["float32"].unit, "two roundings a dropout, of factor and product", 0.0)

    check.dropout_values(actual=outputs, inputs=ones, rate=RATE, tolerance=allowed, what="dropout")


@each({word: row for word, row in DROPPED.items() if word != "small"})
def test_training_follows_the_masks(runs: Runs, name: str, config: RunConfig) -> None:
    """The gradient passes where the value passed: weights are the oracle's with the masks that were seen."""
    compare_with_masks(runs, net_of(name), config)


@each({"single": Row(PLAIN, counted(2, 3, 1, steps=4)), "replicated": Row(PLAIN, counted(1, 3, 4, steps=2))})
def test_masks_of_seeds_are_independent(runs: Runs, name: str, config: RunConfig) -> None:
    """Another seed draws other masks, in this step and in those around it, and the same seed the same ones."""
    seeds = [replace(config, seed=seed) for seed in SEEDS]
    masks = np.stack([kept(runs.train(name, each)) for each in seeds])
    again = Runs(runs.framework).train(name, seeds[1])

    check.dropout_masks(masks=masks, rate=RATE, axes=("seed", *AXES), what="dropout in training")
    check.runs_identical(actual=again, expected=runs.train(name, seeds[1]))
