"""Random words by position: sample i of a split is a function of (seed, split, i) and of nothing else.

Philox is a counter-based generator whose raw 64-bit words are specified to the bit, unlike the distributions built on
them. Every sample owns a fixed range of counters, so that any part of a set is made without making what precedes it.
"""

from __future__ import annotations

from typing import Callable, Iterable, Iterator, Tuple

import numpy as np

WORDS_PER_COUNTER = 4


def sample_words(seed: int, stream: int, first: int, count: int, words: int) -> np.ndarray:
    """``uint64 [count, words]``: of the samples ``first`` to ``first + count``; ``words`` is a multiple of four."""
    if words % WORDS_PER_COUNTER:
        raise ValueError(f"words is {words}, and has to be a multiple of {WORDS_PER_COUNTER}")
    # A list with a number of 64 bits would go through floats and lose the lower ones.
    key = np.array([seed, stream], np.uint64)
    generator = np.random.Philox(key=key, counter=first * (words // WORDS_PER_COUNTER))
    return generator.random_raw(count * words).reshape(count, words)


def sample_chunks(
    seed: int, stream: int, first: int, count: int, *, words: int, size: int
) -> Iterator[Tuple[slice, np.ndarray]]:
    """The words of the samples from ``first`` on, ``size`` samples at a time, each with its place among them."""
    for start in range(0, count, size):
        part = slice(start, min(start + size, count))
        yield part, sample_words(seed, stream, first + start, part.stop - start, words)


Draw = Callable[[np.ndarray, np.ndarray], np.ndarray]


def draw_labelled(
    chunks: Iterable[Tuple[slice, np.ndarray]], draw: Draw, shape: Tuple[int, ...]
) -> Tuple[np.ndarray, np.ndarray]:
    """Images ``draw(words, labels)`` and labels from 0 to 9; a sample's first word chooses its label."""
    images, labels = np.empty(shape, np.uint8), np.empty(shape[0], np.uint8)
    for part, words in chunks:
        labels[part] = between(words[:, 0], 0, 9)
        images[part] = draw(words, labels[part])
    return images, labels


def between(words: np.ndarray, low: int, high: int) -> np.ndarray:
    """``int64`` values from ``low`` to ``high`` inclusive, by multiplying the upper 32 bits with the width."""
    width = np.uint64(high - low + 1)
    return (((words >> np.uint64(32)) * width) >> np.uint64(32)).astype(np.int64) + low


def bytes_of(words: np.ndarray) -> np.ndarray:
    """``uint8 [count, 8 * words]``: the bytes of each word, the least significant first on every machine."""
    return np.ascontiguousarray(words).astype("<u8").view(np.uint8)
