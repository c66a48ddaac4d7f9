"""What ``data list`` shows: every set, where it is, in what format, how large, and whether it is ready."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from typing import Optional, Tuple

from ipu_conformance.data.dataset import KINDS, DataError, Kind
from ipu_conformance.data.formats.bounded import open_maybe_gzip, refusing
from ipu_conformance.data.formats.idx import parse_idx_header
from ipu_conformance.data.formats.npz import npy_shape
from ipu_conformance.data.places import Location, find

_RECORD = 1 + 3 * 32 * 32


@dataclass(frozen=True)
class Row:
    """A set as the list shows it; ``images`` (train, test) is None where only reading it all would tell."""

    name: str
    place: str
    format: str
    images: Optional[Tuple[int, int]]
    size: Optional[int]
    state: str
    ready: bool


def rows() -> Tuple[Row, ...]:
    """A row for every set; headers are read, data is not."""
    return tuple(_synthetic_row(kind) if kind.synthetic else _row(kind.name) for kind in KINDS.values())


def _synthetic_row(kind: Kind) -> Row:
    return Row(kind.name, "made on the spot", "synthetic", (kind.train, kind.test), None, "ready, any size", ready=True)


def _row(name: str) -> Row:
    """A real set's row; a damaged header is the state, not an error: a list of the sets has to list them all."""
    location = find(name)
    if location is None:
        return Row(name, "-", "-", None, None, f"not found; run `ipu-conformance data fetch {name}`", ready=False)
    place = f"{location.folder} ({location.origin})"
    if location.missing:
        lacking = f"incomplete; lacks {', '.join(location.missing)}"
        return Row(name, place, location.format, None, location.size(), lacking, ready=False)
    try:
        images = _images(location)
    except DataError as error:
        return Row(name, place, location.format, None, location.size(), f"damaged: {error}", ready=False)
    return Row(name, place, location.format, images, location.size(), "found; `data verify` checks it", ready=True)


def _images(location: Location) -> Optional[Tuple[int, int]]:
    """The numbers of images that the headers and sizes of the files announce."""
    files = location.files
    if location.format == "idx":
        return _idx_count(location, 0), _idx_count(location, 2)
    if location.format == "batches-bin":
        return sum(path.stat().st_size for path in files[:5]) // _RECORD, files[5].stat().st_size // _RECORD
    if location.format == "keras npz":
        return _npz_count(location, 0, "y_train"), _npz_count(location, 0, "y_test")
    if location.format == "jpeg npz":
        return _npz_count(location, 0, "label"), _npz_count(location, 1, "label")
    return None


def _idx_count(location: Location, number: int) -> int:
    path = location.files[number]
    with refusing(path, "an idx3 file"), open_maybe_gzip(path, 16) as stream:
        return parse_idx_header(stream.read(16), 3, path, "an idx3 file")[0]


def _npz_count(location: Location, number: int, array: str) -> int:
    path = location.files[number]
    with refusing(path, f"an npz with {array!r}"), zipfile.ZipFile(path) as archive:
        return npy_shape(archive, array)[0]
