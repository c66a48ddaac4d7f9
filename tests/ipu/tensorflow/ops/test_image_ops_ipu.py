"""image_ops, statistics_ops and slicing_ops: images, histograms and sequences, exact wherever numbers are small."""

from __future__ import annotations

from typing import Any, List

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


@pytest.mark.parametrize(
    ("image", "offsets", "word"),
    [
        (np.zeros((2, 2, 4), np.float32), OFFSETS, "3 channels"),
        (np.zeros((2, 2, 3), np.int32), OFFSETS, "int32"),
        (np.zeros((2, 2, 3), np.float32), OFFSETS[:2], "channel_offsets"),
    ],
    ids=["channels", "dtype", "offsets"],
)
def test_what_is_no_image_is_refused(tf: Any, ipu: Any, image: Any, offsets: Any, word: str) -> None:
    """An image has three channels of a known type, and an offset for each."""
    with check.raises(ValueError, match=word, what=f"normalise_image of {image.dtype} {list(image.shape)}"):
        ipu.image_ops.normalise_image(tf.constant(image), offsets, SCALES)


# Histograms


VALUES, LEVELS = np.array([[-2.5, 0.5, 1.0], [1.5, 2.0, 3.0], [3.5, -4.0, 0.0]]), np.array([0.0, 1.0, 3.0])


@pytest.mark.parametrize(("absolute", "expected"), [(False, [2, 2, 3, 2]), (True, [0, 2, 4, 3])])
def test_values_are_counted_between_levels(
    tf: Any, ipu: Any, strategy: Any, absolute: bool, expected: List[int]
) -> None:
    """A value on a level counts above it; the sizes of values can be counted instead."""
    result = run(tf, strategy, lambda x, levels: ipu.statistics_ops.histogram(x, levels, absolute), [VALUES, LEVELS])

    check.identical(actual=result.outputs[0], expected=np.array(expected, np.float32), what="the histogram")


@pytest.mark.parametrize("absolute", [False, True])
def test_a_histogram_is_added_to(tf: Any, ipu: Any, strategy: Any, absolute: bool) -> None:
    """New counts, of the values or of their absolute values, are added to the old."""
    old = np.array([5.0, 0.0, 1.0, 7.0])
    result = run(
        tf, strategy, lambda old, x, levels: ipu.statistics_ops.histogram_update(old, x, levels, absolute),
        [old, VALUES, LEVELS],
    )  # fmt: skip

    counted = np.abs(VALUES) if absolute else np.asarray(VALUES)
    bins = [np.sum(np.searchsorted(LEVELS, np.ravel(counted), side="right") == place) for place in range(len(old))]
    check.identical(actual=result.outputs[0], expected=(old + bins).astype(np.float32), what="the histogram")


def test_a_histogram_becomes_shares(tf: Any, ipu: Any, strategy: Any) -> None:
    """The shares are the counts over their sum, here a power of two."""
    result = run(tf, strategy, ipu.statistics_ops.histogram_normalize, [np.array([3.0, 0.0, 1.0, 4.0])])

    check.identical(actual=result.outputs[0], expected=np.array([0.375, 0, 0.125, 0.5], np.float32), what="the shares")


def test_levels_cut_a_range_evenly(tf: Any, ipu: Any, strategy: Any) -> None:
    """Five bins of the range from -4 to 3.5 have four levels between them."""
    result = run(tf, strategy, lambda x: ipu.statistics_ops.fixed_width_bins(x, 5), [VALUES])

    expected = np.linspace(-4.0, 3.5, 6)[1:-1]
    # A level is an end of the range and a multiple of the width: two products and a sum of sizes up to the range.
    within(result.outputs[0], expected, [Term(np.full(4, 7.5), length=3)], "the levels")


# Sequences


SOURCE, TARGET = np.arange(16.0).reshape(8, 2), -np.ones((9, 2))


@pytest.mark.parametrize("zero", [False, True], ids=["kept", "zeroed"])
def test_sequences_are_copied(tf: Any, ipu: Any, strategy: Any, zero: bool) -> None:
    """Rows are copied from where each sequence begins to where it is wanted; others stay, or become 0."""
    result = run(
        tf, strategy,
        lambda dst, src, n, a, b: ipu.slicing_ops.sequence_slice(dst, src, n, a, b, zero),
        [TARGET, SOURCE, np.array([2, 3, 1]), np.array([5, 0, 7]), np.array([0, 3, 7])],
    )  # fmt: skip
    expected = np.full((9, 2), 0.0 if zero else -1.0, np.float32)
    expected[0:2], expected[3:6], expected[7] = SOURCE[5:7], SOURCE[0:3], SOURCE[7]

    check.identical(actual=result.outputs[0], expected=expected, what="the copied sequences")


def test_sequences_are_packed_and_unpacked(tf: Any, ipu: Any, strategy: Any) -> None:
    """Sequences that stand one behind the other are put at offsets, and come back one behind the other."""
    dense = np.arange(1.0, 13.0, dtype=np.float32).reshape(6, 2)
    lengths, offsets = np.array([3, 2, 1]), np.array([5, 0, 3])

    def there_and_back(src: Any, n: Any, offsets: Any) -> Any:
        packed = ipu.slicing_ops.sequence_slice_pack(-tf.ones((8, 2)), src, n, offsets, False)
        return packed, ipu.slicing_ops.sequence_slice_unpack(packed, n, offsets, 6)

    result = run(tf, strategy, there_and_back, [dense, lengths, offsets])
    packed = np.full((8, 2), -1, np.float32)
    packed[5:8], packed[0:2], packed[3:4] = dense[0:3], dense[3:5], dense[5:6]

    check.identical(actual=result.outputs[0], expected=packed, what="the packed sequences")
    check.identical(actual=result.outputs[1], expected=dense, what="the unpacked sequences")
