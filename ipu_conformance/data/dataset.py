"""What a data set is: two splits of uint8 images and labels, and where they came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Mapping, Tuple

import numpy as np

from ipu_conformance.errors import ConformanceError

CLASSES = 10


class DataError(ConformanceError):
    """A data set was not found, cannot be read or cannot be fetched."""


@dataclass(frozen=True)
class Split:
    """Images ``uint8 [N, H, W, C]`` and their labels ``uint8 [N]``; both arrays are read-only."""

    images: np.ndarray
    labels: np.ndarray

    def __post_init__(self) -> None:
        self.images.setflags(write=False)
        self.labels.setflags(write=False)

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class DataSet:
    """A data set by name; ``source`` says in words where its bytes came from."""

    name: str
    source: str
    train: Split
    test: Split


@dataclass(frozen=True)
class Kind:
    """The fixed facts of a data set: one image's shape and the sizes of the whole splits."""

    name: str
    shape: Tuple[int, int, int]
    train: int
    test: int
    synthetic: bool

    def size(self, split: str) -> int:
        """The number of images of the whole ``train`` or ``test`` split."""
        return self.train if split == "train" else self.test


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("mnist", (28, 28, 1), 60_000, 10_000, synthetic=False),
        Kind("cifar10", (32, 32, 3), 50_000, 10_000, synthetic=False),
        Kind("synthetic-digits", (28, 28, 1), 60_000, 10_000, synthetic=True),
        Kind("synthetic-cifar", (32, 32, 3), 50_000, 10_000, synthetic=True),
    )
}

SPLITS = ("train", "test")

CLASS_NAMES: Dict[str, Tuple[str, ...]] = {
    "mnist": tuple("0123456789"),
    "cifar10": ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    "synthetic-digits": tuple("0123456789"),
    "synthetic-cifar": (
        "disc", "square", "triangle", "ring", "plus", "star", "crescent", "chevron", "bars", "corner",
    ),
}  # fmt: skip


def kind_of(name: str) -> Kind:
    """The facts of the data set called ``name``; an unknown name is refused with the known ones."""
    try:
        return KINDS[name]
    except KeyError:
        raise DataError(f"there is no data set {name!r}; choose one of {', '.join(KINDS)}") from None
