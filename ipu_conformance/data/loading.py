"""``load``: a data set by name, from the disk or made on the spot, kept in memory for the next caller."""

from __future__ import annotations

from functools import lru_cache
from typing import Dict, Optional, Tuple

from ipu_conformance.data.dataset import KINDS, SPLITS, DataError, DataSet, Split, kind_of
from ipu_conformance.data.formats.checked import first
from ipu_conformance.data.places import Location, find, locate

DEFAULT_SEED = 2021


def load(name: str, *, train: Optional[int] = None, test: Optional[int] = None, seed: int = DEFAULT_SEED) -> DataSet:
    """The first ``train`` and ``test`` samples of a data set, all of them by default.

    A synthetic set has any size, and ``seed`` chooses its samples; a smaller set is the beginning of a larger one. A
    real set has its own samples in the order of its files, and ``seed`` has no influence on it.
    """
    kind = kind_of(name)
    for split, count in (("train", train), ("test", test)):
        if count is not None and count < 0:
            raise DataError(f"{split} is {count}; ask for 0 or more samples, or for None to get them all")
    if kind.synthetic:
        parts = [
            _synthetic(name, split, kind.size(split) if count is None else count, seed)
            for split, count in (("train", train), ("test", test))
        ]
        return DataSet(name, f"made on the spot with seed {seed}", *parts)
    location = locate(name)
    # Files that change on the disk are read again.
    stamp = tuple((path.stat().st_mtime_ns, path.stat().st_size) for path in location.files)
    parts = [_read(location, stamp, split, count) for split, count in (("train", train), ("test", test))]
    return DataSet(name, f"{location.format} in {location.folder} ({location.origin})", *parts)


def available() -> Tuple[str, ...]:
    """The names that ``load`` can serve now; the files are found, not yet read."""
    names = []
    for name, kind in KINDS.items():
        location = None if kind.synthetic else find(name)
        if kind.synthetic or (location is not None and not location.missing):
            names.append(name)
    return tuple(names)


_synthetic_splits: Dict[Tuple[str, str, int], Split] = {}


def _synthetic(name: str, split: str, count: int, seed: int) -> Split:
    """A synthetic split; the largest that was made so far serves every smaller one."""
    from ipu_conformance.data.synthetic import make

    key = (name, split, seed)
    samples = _synthetic_splits.get(key)
    if samples is None or len(samples) < count:
        _synthetic_splits[key] = samples = make(name, split, count, seed=seed)
    return first(samples, count)


@lru_cache(maxsize=8)
def _read(location: Location, stamp: Tuple[Tuple[int, int], ...], split: str, count: Optional[int]) -> Split:
    """A split read by the reader of its format, with the requested number of samples."""
    del stamp  # part of the key only
    # An empty split is a wish, and not something that a file may hold.
    read = first(read_split(location, split, None if count is None else max(count, 1)), count)
    if count is not None and len(read) < count:
        raise DataError(
            f"{location.folder} has {len(read):,} {split} images of {location.name} and {count:,} were asked for; "
            "ask for fewer"
        )
    return read


def read_split(location: Location, split: str, count: Optional[int] = None) -> Split:
    """The first ``count`` samples of a split, read from the files of ``location``."""
    from ipu_conformance.data.formats import cifar, idx, npz

    kind = kind_of(location.name)
    half = SPLITS.index(split)
    if location.format == "idx":
        images, labels = location.files[2 * half : 2 * half + 2]
        return idx.read_idx_split(kind, split, images, labels, count)
    if location.format == "keras npz":
        return npz.read_keras_split(kind, split, location.files[0], count)
    if location.format == "jpeg npz":
        return npz.read_jpeg_split(kind, split, location.files[half], count)
    if location.format == "tar.gz":
        return cifar.read_tar_split(kind, split, location.files[0], count)
    return cifar.read_folder_split(kind, split, location.folder, count, binary=location.format == "batches-bin")
