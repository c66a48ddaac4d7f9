"""Digits as arrays, and the order in which they are trained on."""

from __future__ import annotations

from typing import Iterator, NamedTuple, Tuple

import numpy as np

from ipu_conformance.data import Split, load
from ipu_conformance.workloads.paddle_mnist.settings import Settings

SIDE = 28


class Samples(NamedTuple):
    """Images ``float32 [N, 1, 28, 28]`` from -1 to 1 and labels ``int64 [N, 1]``."""

    images: np.ndarray
    labels: np.ndarray


def datasets(settings: Settings) -> Tuple[Samples, Samples]:
    """The training and the test set."""
    digits = load(settings.data, train=settings.train_size, test=settings.test_size)
    return _samples(digits.train), _samples(digits.test)


def _samples(split: Split) -> Samples:
    return Samples(scaled(split.images.transpose(0, 3, 1, 2)), split.labels.astype(np.int64)[:, np.newaxis])


def scaled(pixels: np.ndarray) -> np.ndarray:
    """Pixels from 0 to 255 as float32 from -1 to 1; what a saved model takes needs no statistics of its data."""
    return np.ascontiguousarray(pixels, np.float32) / np.float32(127.5) - np.float32(1)


def in_order(samples: Samples, settings: Settings, epoch: int) -> Iterator[Samples]:
    """The whole batches of one epoch in an order of its own, the same on every target."""
    order = np.random.default_rng([settings.seed, epoch]).permutation(len(samples.labels))
    for first in range(0, len(order) - settings.batch_size + 1, settings.batch_size):
        chosen = order[first : first + settings.batch_size]
        yield Samples(samples.images[chosen], samples.labels[chosen])


def filled(samples: Samples, batch: int) -> Iterator[Tuple[Samples, int]]:
    """All samples in their order as whole batches, each with the number of samples that count.

    The last batch is filled up with copies of its first sample, because a compiled network takes whole batches only.
    """
    for first in range(0, len(samples.labels), batch):
        own = Samples(samples.images[first : first + batch], samples.labels[first : first + batch])
        count = len(own.labels)
        rows = np.r_[np.arange(count), np.zeros(batch - count, np.int64)]
        yield Samples(own.images[rows], own.labels[rows]), count
