"""Digits as arrays: those of a data set, in the order in which they are trained on, and the one in a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator, NamedTuple, Tuple

import numpy as np

from ipu_conformance.data import Split, load
from ipu_conformance.workloads import WorkloadError
from ipu_conformance.workloads.paddle_mnist import Settings

SIDE = 28
FORMATS = ("PNG", "JPEG", "BMP")
MOST_PIXELS = 20_000_000
"""The largest picture that is accepted for one digit."""


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
        part = Samples(samples.images[first : first + batch], samples.labels[first : first + batch])
        count = len(part.labels)
        rows = np.r_[np.arange(count), np.zeros(batch - count, np.int64)]
        yield Samples(part.images[rows], part.labels[rows]), count


def read_picture(path: Path) -> np.ndarray:
    """The digit in a picture of any size and colour as ``float32 [1, 1, 28, 28]``.

    Digits are light on dark, as in MNIST; a picture that is mostly light is taken for its negative.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        # Pillow's other formats are many, and one of them starts Ghostscript.
        with Image.open(path, formats=FORMATS) as picture:
            if picture.width * picture.height > MOST_PIXELS:
                raise WorkloadError(
                    f"--img {path} has {picture.width} x {picture.height} pixels; give a picture of one digit with "
                    f"at most {MOST_PIXELS:,}"
                )
            pixels = np.asarray(picture.convert("L").resize((SIDE, SIDE), Image.Resampling.BILINEAR))
    except FileNotFoundError:
        raise WorkloadError(f"--img {path} does not exist; name a picture of one digit") from None
    except (UnidentifiedImageError, Image.DecompressionBombError, SyntaxError):
        raise WorkloadError(f"--img {path} is not a readable picture; give a PNG, JPEG or BMP of one digit") from None
    except WorkloadError:
        raise
    except Exception as error:  # Pillow's decoders have no closed set of exceptions for damaged pictures
        reason = " ".join(str(error).split()) or type(error).__name__
        raise WorkloadError(f"--img {path} cannot be read ({reason}); give a PNG, JPEG or BMP of one digit") from error
    if pixels.mean() > 127.5:
        pixels = 255 - pixels
    return scaled(pixels[np.newaxis, np.newaxis])
