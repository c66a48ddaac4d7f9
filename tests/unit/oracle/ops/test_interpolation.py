"""Interpolation: what its coordinate conventions mean."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.oracle.op import OracleError
from ipu_conformance.oracle.ops.layers.interpolation import COORDINATES, linear_matrix, nearest_indices, points
from tests.unit.oracle.installed import installed

sizes = st.integers(1, 12)


@given(inputs=sizes, outputs=sizes, coordinates=st.sampled_from(COORDINATES))
def test_weights_are_shares_of_two_neighbours(inputs: int, outputs: int, coordinates: str) -> None:
    """Each output has at most two weights, next to each other, not negative, that add up to 1."""
    matrix = linear_matrix(inputs, outputs, coordinates)

    assert (matrix >= 0).all()
    # A point and its distance to two neighbours are rounded: fewer than 4 roundings of numbers below `inputs`.
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, rtol=0, atol=4 * inputs * float(np.finfo(float).eps))
    for row in matrix:
        used = np.flatnonzero(row > inputs * np.finfo(float).eps)
        assert used[-1] - used[0] <= 1


@given(size=sizes, coordinates=st.sampled_from(COORDINATES))
def test_resizing_to_the_same_size_changes_nothing(size: int, coordinates: str) -> None:
    """With equal sizes every convention copies."""
    np.testing.assert_array_equal(linear_matrix(size, size, coordinates), np.eye(size))
    np.testing.assert_array_equal(nearest_indices(size, size, coordinates), np.arange(size))


def test_points_of_doubling_by_hand() -> None:
    """Two elements doubled lie at quarters, thirds and halves."""
    np.testing.assert_array_equal(points(2, 4, "half_pixel"), [-0.25, 0.25, 0.75, 1.25])
    np.testing.assert_array_equal(points(2, 4, "align_corners"), [0, 1 / 3, 2 / 3, 1])
    np.testing.assert_array_equal(points(2, 4, "asymmetric"), [0, 0.5, 1, 1.5])


def test_nearest_by_hand() -> None:
    """Three of five elements are the first of each share, the middle of each share, or the ends and the middle."""
    assert nearest_indices(5, 3, "asymmetric").tolist() == [0, 1, 3]
    assert nearest_indices(5, 3, "half_pixel").tolist() == [0, 2, 4]
    assert nearest_indices(5, 3, "align_corners").tolist() == [0, 2, 4]


def test_nearest_with_aligned_corners_is_that_of_tensorflow() -> None:
    """With aligned corners TensorFlow rounds to the same elements, halves upwards."""
    tf = installed("tensorflow")
    for inputs, outputs in ((5, 3), (2, 3), (4, 7), (3, 5), (6, 4)):
        line = np.arange(float(inputs)).reshape(1, inputs, 1, 1)
        resized = tf.raw_ops.ResizeNearestNeighbor(images=line, size=(outputs, 1), align_corners=True)

        assert nearest_indices(inputs, outputs, "align_corners").tolist() == resized.numpy().ravel().tolist()


def test_unknown_coordinates_are_refused() -> None:
    """The message names the conventions there are."""
    with pytest.raises(OracleError, match="'middle' are unknown; use one of half_pixel, align_corners, asymmetric"):
        points(2, 3, "middle")
