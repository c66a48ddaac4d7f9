"""MNIST, CIFAR-10 and synthetic sets: uint8 images and labels by name, from the disk or made on the spot."""

from __future__ import annotations

from ipu_conformance.data.dataset import CLASS_NAMES, KINDS, DataError, DataSet, Kind, Split
from ipu_conformance.data.loading import DEFAULT_SEED, available, load
from ipu_conformance.data.places import Location, locate

__all__ = [
    "CLASS_NAMES",
    "DEFAULT_SEED",
    "KINDS",
    "DataError",
    "DataSet",
    "Kind",
    "Location",
    "Split",
    "available",
    "load",
    "locate",
]
