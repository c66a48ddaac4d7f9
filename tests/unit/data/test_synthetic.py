"""The synthetic sets are functions of (seed, split, number): the same bytes everywhere, in any size."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ipu_conformance.data import KINDS, DataError, load
from ipu_conformance.data.originals import EXACT, verify
from ipu_conformance.data.synthetic import make
from ipu_conformance.data.synthetic.glyphs import GLYPHS, POINTS, basis_table
from ipu_conformance.data.synthetic.words import between, bytes_of, sample_words
from tests.unit.examples import at_most

NAMES = tuple(name for name, kind in KINDS.items() if kind.synthetic)


@pytest.mark.parametrize("name", NAMES)
def test_the_bytes_are_the_recorded_ones(name):
    """A thousand samples of each split have the SHA-256 that every platform has to give."""
    result = verify(name)

    assert result.state == EXACT, result.parts


def test_the_random_words_are_the_recorded_ones():
    """The generator's raw words are the first thing to look at when the sets' bytes differ."""
    words = sample_words(seed=2021, stream=1, first=5, count=3, words=8)

    assert hashlib.sha256(words.astype("<u8").tobytes()).hexdigest() == WORDS_DIGEST


WORDS_DIGEST = "890da1ff50fa13a032ddb5637584fdb347a4964919de334997a280f38ca517b6"


@pytest.mark.parametrize("name", NAMES)
@given(
    seed=st.integers(0, 2**64 - 1),
    split=st.sampled_from(["train", "test"]),
    first=st.integers(0, 700),
    count=st.integers(0, 40),
)
@example(seed=2**64 - 1, split="test", first=300, count=3)
@at_most(12)
def test_a_sample_depends_on_its_number_alone(name, seed, split, first, count):
    """Any part of a set made by itself is that part of the whole."""
    whole = make(name, split, first + count, seed=seed)

    part = make(name, split, count, seed=seed, first=first)

    assert np.array_equal(part.images, whole.images[first:])
    assert np.array_equal(part.labels, whole.labels[first:])


@pytest.mark.parametrize("name", NAMES)
def test_the_sets_have_the_shapes_of_the_real_ones(name):
    """uint8 images [N, H, W, C] and labels [N], of any size, all ten classes among them."""
    data = load(name, train=400, test=37, seed=11)

    kind = KINDS[name]
    assert data.train.images.shape == (400, *kind.shape)
    assert data.test.images.shape == (37, *kind.shape)
    assert data.train.images.dtype == data.train.labels.dtype == np.uint8
    assert sorted(set(data.train.labels.tolist())) == list(range(10))


@pytest.mark.parametrize("name", NAMES)
def test_seeds_and_splits_give_different_samples(name):
    """No image of one split or seed occurs in another."""
    sets = [make(name, split, 60, seed=seed) for seed in (1, 2) for split in ("train", "test")]

    images = {image.tobytes() for split in sets for image in split.images}

    assert len(images) == 4 * 60


def test_a_smaller_load_is_the_beginning_of_a_larger_one():
    """What is remembered of the larger set serves the smaller, and the other way round."""
    small = load("synthetic-digits", train=20, test=0, seed=77)
    large = load("synthetic-digits", train=50, test=0, seed=77)
    again = load("synthetic-digits", train=30, test=0, seed=77)

    assert np.array_equal(large.train.images[:20], small.train.images)
    assert np.array_equal(large.train.images[:30], again.train.images)


def test_neighbouring_large_seeds_give_different_samples():
    """All 64 bits of a seed count."""
    one, other = (make("synthetic-digits", "train", 1, seed=seed) for seed in (2**64 - 1, 2**64 - 2))

    assert not np.array_equal(one.images, other.images)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_out_of_range_is_refused(seed):
    """Seeds are unsigned 64-bit numbers."""
    with pytest.raises(DataError, match=f"seed is {seed}; it has to be from 0"):
        load("synthetic-digits", train=1, test=1, seed=seed)


def test_more_samples_than_can_be_made_are_refused():
    """A wish beyond ten million is refused before any memory is taken."""
    with pytest.raises(DataError, match="has up to 10,000,000 samples"):
        load("synthetic-cifar", train=10_000_001)


def test_every_digit_has_the_same_number_of_points():
    """The points divide evenly among the curves of each digit, and every point's weights sum to one."""
    assert [POINTS % len(glyph.curves) for glyph in GLYPHS] == [0] * 10
    sums = basis_table().sum(axis=2)
    # Each of at most four weights is rounded down.
    assert ((sums > 2**12 - 4) & (sums <= 2**12)).all()


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=8), st.integers(-500, 500), st.integers(0, 1000))
@at_most(60)
def test_values_lie_between_their_bounds(words, low, width):
    """The smallest word gives the lower bound and the largest the upper one."""
    values = between(np.array([0, *words, 2**64 - 1], np.uint64), low, low + width)

    assert (values[0], values[-1]) == (low, low + width)
    assert ((values >= low) & (values <= low + width)).all()


def test_bytes_are_least_significant_first():
    """The order of bytes does not depend on the machine's."""
    assert bytes_of(np.array([[0x0807060504030201]], np.uint64)).tolist() == [[1, 2, 3, 4, 5, 6, 7, 8]]
