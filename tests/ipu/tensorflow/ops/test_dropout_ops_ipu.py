"""rand_ops.dropout: how much it drops, what it keeps, which seeds give the same, and its gradient."""

from __future__ import annotations

from typing import Any, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.op import OPS
from ipu_conformance.oracle.sample import Sample
from ipu_conformance.oracle.tolerance.ops import Tolerance, for_op

from .operations import DTYPES, OpResult, as_specified, run, values

POSITIONS = 1200
"""Enough for the exact tests of independence to fail when they should."""


def _inputs(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Values of which none is near 0, so that what is dropped can be seen."""
    return np.abs(values(shape, 71, dtype=dtype)) + 0.5


def _scaled(x: np.ndarray, rate: float, dtype: str) -> Tolerance:
    """The tolerance of what is kept: the oracle's of dropping nothing, but scaling."""
    return for_op(OPS["dropout"], Sample((x, np.ones(x.shape, bool)), {"rate": rate}), dtype=dtype)


def _kept(actual: np.ndarray, x: np.ndarray, rate: float, dtype: str = "float32") -> np.ndarray:
    check.dtype(actual=actual, expected=dtype, what="the dropped tensor")
    return check.dropout_values(
        actual=actual, inputs=x, rate=rate, tolerance=_scaled(x, rate, dtype), what="the dropped tensor"
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rate", [0.125, 0.5, 0.75])
def test_dropout_drops_at_its_rate(tf: Any, ipu: Any, strategy: Any, rate: float, dtype: str) -> None:
    """A share of ``rate`` is 0, the others are divided by 1 - rate, and no two draws know of each other."""
    x = _inputs(POSITIONS, dtype=dtype)
    result = run(tf, strategy, lambda x: [ipu.rand_ops.dropout(x, rate) for _ in range(3)], [x], dtype=dtype)
    masks = np.stack([_kept(actual, x, rate, dtype) for actual in result.outputs])

    check.dropout_masks(masks=masks, rate=rate, axes=("draw",), what="the mask")


def test_the_gradient_has_the_same_mask(tf: Any, ipu: Any, strategy: Any) -> None:
    """What was dropped gets no gradient, what was kept gets it scaled by the same factor."""
    x, cotangent = _inputs(8, 30), values((8, 30), 72)
    result = run(tf, strategy, lambda x: ipu.rand_ops.dropout(x, 0.25), [x], [cotangent])
    mask = _kept(result.outputs[0], x, 0.25)

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
    masks = np.stack([_kept(first[place], x, 0.5) for place in (0, 2, 3)])
    check.dropout_masks(masks=masks, rate=0.5, axes=("seed",), what="the mask")


def test_without_a_seed_every_execution_draws_anew(tf: Any, ipu: Any, strategy: Any) -> None:
    """Two executions of one program drop differently."""
    x = _inputs(POSITIONS)
    program = tf.function(lambda x: ipu.rand_ops.dropout(x, 0.5))
    with strategy.scope():
        runs = [strategy.run(program, args=(tf.constant(x, tf.float32),)).numpy() for _ in range(2)]

    masks = np.stack([_kept(actual, x, 0.5) for actual in runs])
    check.dropout_masks(masks=masks, rate=0.5, axes=("execution",), what="the mask")


def test_the_seed_of_the_device_decides_what_is_dropped(tf: Any, ipu: Any, strategy: Any) -> None:
    """After the same reset the same is dropped, and after another something else."""
    x, runs = _inputs(POSITIONS), []
    for seed in (11, 11, 12):
        ipu.utils.reset_ipu_seed(seed)
        runs.append(run(tf, strategy, lambda x: ipu.rand_ops.dropout(x, 0.5), [x]).outputs[0])

    check.identical(actual=runs[1], expected=runs[0], what="dropout after the same reset")
    masks = np.stack([_kept(runs[place], x, 0.5) for place in (0, 2)])
    check.dropout_masks(masks=masks, rate=0.5, axes=("seed",), what="the mask")


@pytest.mark.parametrize("noise", [(1, 1200), (40, 1)])
def test_noise_of_size_one_drops_a_whole_axis(tf: Any, ipu: Any, strategy: Any, noise: Tuple[int, int]) -> None:
    """Along an axis where the noise has one value, all elements share their fate, and only there."""
    x = _inputs(40, 1200)
    result = run(tf, strategy, lambda x: ipu.rand_ops.dropout(x, 0.5, noise_shape=noise), [x])
    mask = _kept(result.outputs[0], x, 0.5)
    axis = noise.index(1)

    check.identical(
        actual=mask, expected=np.repeat(mask.take([0], axis), x.shape[axis], axis), what="the mask along its axis"
    )
    assert 0 < mask.take(0, axis).sum() < mask.take(0, axis).size


def test_a_rate_of_zero_drops_nothing(tf: Any, ipu: Any, strategy: Any) -> None:
    """Every value passes as it is."""
    x = _inputs(5, 3)
    result = run(tf, strategy, lambda x: ipu.rand_ops.dropout(x, 0.0), [x])

    check.identical(actual=result.outputs[0], expected=x.astype(np.float32), what="the tensor")


@pytest.mark.parametrize("rate", [1.0, -0.5, "half"])
def test_a_rate_is_less_than_one(tf: Any, ipu: Any, rate: Any) -> None:
    """All cannot be dropped, nor less than nothing."""
    with pytest.raises(ValueError, match="rate"):
        ipu.rand_ops.dropout(tf.ones((2, 3)), rate)


@pytest.mark.parametrize("noise", [(2,), (1, 2)])
def test_the_noise_fits_the_tensor(tf: Any, ipu: Any, noise: Tuple[int, ...]) -> None:
    """Noise has as many axes as the tensor, each of size 1 or the tensor's own."""
    with pytest.raises(ValueError, match="noise_shape"):
        ipu.rand_ops.dropout(tf.ones((2, 3)), 0.5, noise_shape=noise)


def test_a_seed_is_a_pair(tf: Any, ipu: Any) -> None:
    """Three numbers are no seed."""
    with pytest.raises(ValueError, match="seed"):
        ipu.rand_ops.dropout(tf.ones((2, 3)), 0.5, seed=(1, 2, 3))
