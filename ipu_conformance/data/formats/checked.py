"""The one door through which arrays read from files enter: dtype, shape and label range are checked here."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import numpy as np

from ipu_conformance.data.dataset import CLASSES, DataError, Kind, Split


def checked_split(kind: Kind, split: str, images: np.ndarray, labels: np.ndarray, path: Path) -> Split:
    """A split of ``kind`` from the arrays read from ``path``; a channel axis of one may be left out."""
    check_array(images, "images", kind, path)
    check_array(labels, "labels", kind, path)
    height, width, channels = kind.shape
    if channels == 1 and images.ndim == 3:
        images = images[..., None]
    if images.shape[1:] != kind.shape:
        shape = " x ".join(map(str, images.shape[1:]))
        right = f"{height} x {width} x {channels}"
        raise DataError(f"{path} holds images of {shape} and {kind.name} has {right}; replace it")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (len(images),):
        raise DataError(
            f"{path} belongs to {len(images):,} images with labels of shape {labels.shape}; each needs one label"
        )
    check_count(kind, split, len(images), path)
    if len(labels) and int(labels.max()) >= CLASSES:
        raise DataError(f"{path} goes with a label {labels.max()} and {kind.name} has 0 to {CLASSES - 1}; replace it")
    return Split(np.ascontiguousarray(images), np.ascontiguousarray(labels))


def check_array(array: np.ndarray, what: str, kind: Kind, path: Path) -> None:
    """Refuse an array that is not uint8."""
    if array.dtype != np.uint8:
        raise DataError(f"{path} holds {what} of type {array.dtype} and {kind.name} has uint8; replace it")


def check_count(kind: Kind, split: str, count: int, path: Path) -> None:
    """Refuse an empty split and one with more images than the original has."""
    if not 1 <= count <= kind.size(split):
        raise DataError(
            f"{path} holds {count:,} {split} images and {kind.name} has 1 to {kind.size(split):,}; replace the file"
        )


def first(split: Split, count: Optional[int]) -> Split:
    """The first ``count`` samples, or all of them."""
    return split if count is None else Split(split.images[:count], split.labels[:count])
