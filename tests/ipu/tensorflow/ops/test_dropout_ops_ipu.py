"""rand_ops.dropout: how much it drops, what it keeps, which seeds give the same, and its gradient."""

from __future__ import annotations

from typing import Any, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from ..device_programs import Device
from .operations import DTYPES, OpResult, as_specified, kept, run, values

POSITIONS = 1200
"""Enough for the exact tests of independence to fail when they should."""
MANY = 60_000
"""Enough for a rate that is off by a few hundredths of itself to show."""


def _inputs(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Values of which none is near 0, so that what is dropped can be seen."""
    return np.abs(values(shape, 71, dtype=dtype)) + 0.5


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rate", [0.125, 0.5, 0.75])
def test_dropout_drops_at_its_rate(tf: Any, ipu: Any, strategy: Any, rate: float, dtype: str) -> None:
    """A share of ``rate`` is 0, the others are divided by 1 - rate, and draws and their halves are independent."""
    x = _inputs(MANY, dtype=dtype)
    result = run(tf, strategy, lambda x: [ipu.rand_ops.dropout(x, rate) for _ in range(3)], [x], dtype=dtype)
    masks = np.stack([kept(actual, x, rate, dtype).reshape(2, -1) for actual in result.outputs])

    check.dropout_masks(masks=masks, rate=rate, axes=("draw", "half"), what="the mask")


def test_replicas_and_iterations_draw_independently(ipu: Any, eager: Device) -> None:
    """Every replica drops something else in every iteration of a loop."""
    steps, replicas, rate = 3, 4, 0.375
    ones = np.ones((steps, replicas, POSITIONS), np.float32)
    outfed = eager.open(replicas).outfed(steps, lambda x: ipu.rand_ops.dropout(x, rate), ones.reshape(-1, POSITIONS))

    masks = kept(outfed, ones, rate)
    check.dropout_masks(masks=masks, rate=rate, axes=("iteration", "replica"), what="the mask")


def test_the_gradient_has_the_same_mask(tf: Any, ipu: Any, strategy: Any) -> None:
    """What was dropped gets no gradient, what was kept gets it scaled by the same factor."""
    x, cotangent = _inputs(8, 30), values((8, 30), 72)
    result = run(tf, strategy, lambda x: ipu.rand_ops.dropout(x, 0.25), [x], [cotangent])
    mask = kept(result.outputs[0], x, 0.25)

    # The oracle's dropout takes its mask as a second input, which has no gradient.
    as_specified(OpResult(result.outputs, (*result.gradients, None)), "dropout", [x, mask], cotangent, rate=0.25)


def test_a_seed_decides_what_is_dropped(tf: Any, ipu: Any, strategy: Any) -> None:
    """The same pair drops the same, at every execution; pairs that differ in either number drop differently."""
    x = _inputs(POSITIONS)
    pairs: Tuple[Tuple[int, int], ...] = ((3, 4), (3, 4), (3, 5), (4, 4))
    first, second = (
        run(tf, strategy, lambda x: [ipu.rand_ops.dropout(x, 0.5, seed=pair) for pair in pairs], [x]).outputs
        for _ in range(2)
    )

    for place, actual in enumerate(second):
        check.identical(actual=actual, expected=first[place], what=f"dropout with the seed {pairs[place]}, run again")
    check.identical(actual=first[1], expected=first[0], what="a second dropout with the same seed")
    masks = np.stack([kept(first[place], x, 0.5) for place in (0, 2, 3)])
    check.dropout_masks(masks=masks, rate=0.5, axes=("seed",), what="the mask")


def test_without_a_seed_every_execution_draws_anew(tf: Any, ipu: Any, strategy: Any) -> None:
    """Executions of one program drop independently."""
    x = _inputs(POSITIONS)
    program = tf.function(lambda x: ipu.rand_ops.dropout(x, 0.5))
    with strategy.scope():
        runs = [strategy.run(program, args=(tf.constant(x, tf.float32),)).numpy() for _ in range(3)]

    masks = np.stack([kept(actual, x, 0.5) for actual in runs])
    check.dropout_masks(masks=masks, rate=0.5, axes=("execution",), what="the mask")


def test_the_seed_of_the_device_decides_what_is_dropped(tf: Any, ipu: Any, strategy: Any) -> None:
    """The same seed drops the same, and another seed drops independently, in whichever bits it differs."""
    x, runs = _inputs(POSITIONS), []
    for seed in (11, 11, 12, 11 + 2**20):
        ipu.utils.reset_ipu_seed(seed)
        runs.append(run(tf, strategy, lambda x: ipu.rand_ops.dropout(x, 0.5), [x]).outputs[0])

    check.identical(actual=runs[1], expected=runs[0], what="dropout after the same reset_ipu_seed")
    masks = np.stack([kept(runs[place], x, 0.5) for place in (0, 2, 3)])
    check.dropout_masks(masks=masks, rate=0.5, axes=("seed",), what="the mask")


@pytest.mark.parametrize("noise", [(1, 1200), (40, 1), (1, 1200, 1)], ids=["noise0", "noise1", "noise2"])
def test_noise_of_size_one_drops_a_whole_axis(tf: Any, ipu: Any, strategy: Any, noise: Tuple[int, ...]) -> None:
    """Elements along axes of noise of size one are dropped together, those across them independently."""
    x = _inputs(*(40, 1200, 3)[: len(noise)])
    result = run(tf, strategy, lambda x: ipu.rand_ops.dropout(x, 0.5, noise_shape=noise), [x])
    mask, single = kept(result.outputs[0], x, 0.5), tuple(0 if size == 1 else slice(None) for size in noise)

    across = mask[single]
    shared = np.broadcast_to(across.reshape(noise), mask.shape)
    check.identical(actual=mask, expected=shared, what="the mask along axes of 1", because="their noise has one value")
    check.dropout_masks(masks=across, rate=0.5, axes=(), what="the mask across axes of 1")
