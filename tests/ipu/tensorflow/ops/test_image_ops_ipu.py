"""Images, histograms, sequences and segments: operations that are exact wherever numbers are small."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.op import Term

from .operations import DTYPES, run, within

OFFSETS, SCALES = np.array([0.5, 0.25, -1.0]), np.array([2.0, 0.5, 4.0])


def _pixels(*shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape)) * 37 % 256).reshape(*shape, 1) * np.array([1, 1, 1]) ^ np.array([0, 85, 170])


@pytest.mark.parametrize("dtype", ["uint8", *DTYPES])
@pytest.mark.parametrize("shape", [(2, 3), (2, 2, 3)], ids=["image", "batch"])
def test_an_image_is_normalised_and_padded(tf: Any, ipu: Any, strategy: Any, dtype: str, shape: Any) -> None:
    """Pixels are scaled, moved and scaled by channel, and get a fourth channel of zeros; powers of two are exact."""
    pixels, made_as = _pixels(*shape), "float32" if dtype == "uint8" else dtype
    result = run(
        tf, strategy,
        lambda image, offsets, scales: ipu.image_ops.normalise_image(image, offsets, scales, scale=1 / 64),
        [pixels.astype(dtype), OFFSETS, SCALES], dtype=made_as,
    )  # fmt: skip

    expected = np.pad((pixels / 64 - OFFSETS) * SCALES, [(0, 0)] * len(shape) + [(0, 1)]).astype(made_as)
    check.identical(actual=result.outputs[0], expected=expected, what="the image")


def test_the_gradient_of_an_image_is_scaled(tf: Any, ipu: Any, strategy: Any) -> None:
    """A pixel's gradient is both scales times that of its result; the fourth channel has no pixel."""
    cotangent = np.arange(24.0).reshape(2, 3, 4)
    result = run(
        tf, strategy, lambda image: ipu.image_ops.normalise_image(image, OFFSETS, SCALES, scale=1 / 64),
        [_pixels(2, 3).astype(float)], [cotangent],
    )  # fmt: skip
    expected = (cotangent[..., :3] * SCALES / 64).astype(np.float32)
    check.identical(actual=result.gradients[0], expected=expected, what="the gradient of the image")


OLD, DENSE, OFFSETS_OF = np.array([5.0, 0.0, 1.0, 7.0]), np.arange(1.0, 13.0).reshape(6, 2), np.array([5, 0, 3])
VALUES, LEVELS = np.array([[-2.5, 0.5, 1.0], [1.5, 2.0, 3.0], [3.5, -4.0, 0.0]]), np.array([0.0, 1.0, 3.0])
SOURCE, TARGET = np.arange(16.0).reshape(8, 2), -np.ones((9, 2))
PLACES = [np.array([2, 3, 1]), np.array([5, 0, 7]), np.array([0, 3, 7])]
"""The lengths of sequences, where each begins, and where it is wanted."""


def _copied(target: np.ndarray) -> np.ndarray:
    """The rows of the sequences in their places."""
    target[0:2], target[3:6], target[7] = SOURCE[5:7], SOURCE[0:3], SOURCE[7]
    return target


def _packed(ipu: Any, source: Any, lengths: Any, offsets: Any) -> Any:
    """Sequences at offsets, and one behind the other again."""
    packed = ipu.slicing_ops.sequence_slice_pack(-np.ones((8, 2), np.float32), source, lengths, offsets, False)
    return packed, ipu.slicing_ops.sequence_slice_unpack(packed, lengths, offsets, 6)


EXACT: Dict[str, Tuple[Callable[..., Any], List[np.ndarray], List[Any]]] = {
    "values between levels": (
        lambda ipu, x, levels: ipu.statistics_ops.histogram(x, levels, False), [VALUES, LEVELS], [[2, 2, 3, 2]],
    ),
    "sizes between levels": (
        lambda ipu, x, levels: ipu.statistics_ops.histogram(x, levels, True), [VALUES, LEVELS], [[0, 2, 4, 3]],
    ),
    "values added to a histogram": (lambda ipu, *inputs: ipu.statistics_ops.histogram_update(*inputs, False),
        [OLD, VALUES, LEVELS], [[7, 2, 4, 9]],
    ),
    "sizes added to a histogram": (lambda ipu, *inputs: ipu.statistics_ops.histogram_update(*inputs, True),
        [OLD, VALUES, LEVELS], [[5, 2, 5, 10]],
    ),
    "the shares of a histogram": (lambda ipu, x: ipu.statistics_ops.histogram_normalize(x),
        [np.array([3.0, 0.0, 1.0, 4.0])], [[0.375, 0, 0.125, 0.5]],
    ),
    "sequences between rows that stay": (
        lambda ipu, *inputs: ipu.slicing_ops.sequence_slice(*inputs, False), [TARGET, SOURCE, *PLACES],
        [_copied(-np.ones((9, 2)))],
    ),
    "sequences between zeros": (
        lambda ipu, *inputs: ipu.slicing_ops.sequence_slice(*inputs, True), [TARGET, SOURCE, *PLACES],
        [_copied(np.zeros((9, 2)))],
    ),
    "sequences at offsets and back": (
        _packed, [DENSE, np.array([3, 2, 1]), OFFSETS_OF],
        [np.concatenate([DENSE[3:5], -np.ones((1, 2)), DENSE[5:6], -np.ones((1, 2)), DENSE[0:3]]), DENSE],
    ),
    "the sums of segments": (lambda ipu, data, ids: ipu.math_ops.segment_sum(data, ids, 4),
        [np.arange(10.0).reshape(5, 2), np.array([0, 0, 1, 3, 3])], [[[2, 4], [4, 5], [0, 0], [14, 16]]],
    ),
    "a softmax that subtracts the largest": (
        lambda ipu, x: ipu.nn_ops.softmax(x, stable=True), [np.array([[128.0, 128.0]])], [[[0.5, 0.5]]],
    ),
    "a softmax that overflows float32": (
        lambda ipu, x: ipu.nn_ops.softmax(x, stable=False), [np.array([[128.0, 128.0]])], [[[np.nan, np.nan]]],
    ),
    "dropout at a rate of 0": (lambda ipu, x: ipu.rand_ops.dropout(x, 0.0), [VALUES], [VALUES]),
}  # fmt: skip


@pytest.mark.parametrize("what", EXACT)
def test_small_numbers_are_exact(tf: Any, ipu: Any, strategy: Any, what: str) -> None:
    """A value on a level counts above it; rows without a sequence stay, or become 0; segments may have no rows."""
    function, inputs, expected = EXACT[what]
    result = run(tf, strategy, functools.partial(function, ipu), inputs)

    check.equal(actual=len(result.outputs), expected=len(expected), what=f"the number of outputs of {what}")
    for output, values in zip(result.outputs, expected):
        check.identical(actual=output, expected=np.asarray(values, np.float32), what=what)


def test_levels_cut_a_range_evenly(tf: Any, ipu: Any, strategy: Any) -> None:
    """Five bins of the range from -4 to 3.5 have four levels between them."""
    result = run(tf, strategy, lambda x: ipu.statistics_ops.fixed_width_bins(x, 5), [VALUES])

    expected = np.linspace(-4.0, 3.5, 6)[1:-1]
    # A level is an end of the range and a multiple of the width: two products and a sum of sizes up to the range.
    within(result.outputs[0], expected, [Term(np.full(4, 7.5), length=3)], "the levels")
