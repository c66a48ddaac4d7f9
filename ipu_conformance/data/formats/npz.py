"""The two zip formats: Keras' ``mnist.npz``, and CIFAR-10 as joined JPEG files with their offsets."""

from __future__ import annotations

import io
import warnings
import zipfile
from pathlib import Path
from typing import Optional, Tuple

import numpy as np

from ipu_conformance.data.dataset import DataError, Kind, Split
from ipu_conformance.data.formats.bounded import refusing
from ipu_conformance.data.formats.checked import check_array, check_count, checked_split, first

_HEADER_ROOM = 4096
_JPEG_ROOM = 16_384
"""The most bytes that the JPEG file of one 32 x 32 image may take; a few hundred to two thousand are usual."""
_JPEG_RATIO = 4
"""By how much JPEG files may shrink in a zip: they are packed already, but for the tables that each one repeats."""


def read_keras_split(kind: Kind, split: str, path: Path, count: Optional[int]) -> Split:
    """The split ``x_train, y_train`` or ``x_test, y_test`` of Keras' archive."""
    with refusing(path, "a Keras mnist.npz"), zipfile.ZipFile(path) as archive:
        room = kind.size(split) * int(np.prod(kind.shape, dtype=np.int64))
        images = read_member(archive, f"x_{split}", room, path)
        labels = read_member(archive, f"y_{split}", kind.size(split), path)
    return first(checked_split(kind, split, images, labels, path), count)


def read_jpeg_split(kind: Kind, split: str, path: Path, count: Optional[int]) -> Split:
    """The images of joined JPEG files; only the first ``count`` are decoded."""
    with refusing(path, "an npz of JPEG files (jpeg, offset, label)"), zipfile.ZipFile(path) as archive:
        size = kind.size(split)
        packed = sum(info.compress_size for info in archive.infolist() if info.filename == "jpeg.npy")
        joined = read_member(archive, "jpeg", min(size * _JPEG_ROOM, (1 << 20) + _JPEG_RATIO * packed), path)
        offsets = read_member(archive, "offset", (size + 1) * 8, path)
        labels = read_member(archive, "label", size, path)
        check_array(joined, "JPEG bytes", kind, path)
        check_array(labels, "labels", kind, path)
        _check_offsets(offsets, joined, labels, path)
        check_count(kind, split, len(labels), path)
        kept = len(labels) if count is None else min(count, len(labels))
        images = _decode(joined, offsets[: kept + 1], kind, path)
    return checked_split(kind, split, images, labels[:kept], path)


def read_member(archive: zipfile.ZipFile, name: str, room: int, path: Path) -> np.ndarray:
    """The array ``name`` of an npz archive of at most ``room`` bytes; arrays of objects are refused unread."""
    try:
        info = archive.getinfo(name + ".npy")
    except KeyError:
        raise DataError(f"{path} lacks the array {name!r}; replace the file") from None
    if info.file_size > room + _HEADER_ROOM:
        raise DataError(f"{path} announces {info.file_size:,} bytes for {name!r} and may have {room:,}; replace it")
    with archive.open(info) as stream:
        # Python's zip reader stops at the announced size and then checks the CRC.
        data = stream.read(room + _HEADER_ROOM + 1)
    return _parse_npy(data, name, path)


def npy_shape(archive: zipfile.ZipFile, name: str) -> Tuple[int, ...]:
    """The shape that the header of array ``name`` announces."""
    with archive.open(name + ".npy") as stream:
        return _npy_header(io.BytesIO(stream.read(_HEADER_ROOM)))[0]


def _npy_header(stream: io.BytesIO) -> Tuple[Tuple[int, ...], bool, np.dtype]:
    """Shape, Fortran order and dtype of an npy header of version 1 or 2."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(stream)
    raise ValueError(f"npy version {version} is not known")


def _parse_npy(data: bytes, name: str, path: Path) -> np.ndarray:
    """The array of an npy file in memory; its length has to be what the header announces."""
    stream = io.BytesIO(data)
    shape, fortran, dtype = _npy_header(stream)
    if dtype.hasobject:
        raise DataError(f"{path} holds Python objects in {name!r}, which are never loaded; replace the file")
    if fortran and len(shape) > 1:
        raise DataError(f"{path} holds {name!r} in Fortran order and C order is expected; replace the file")
    count = 1
    for extent in shape:  # Python integers, which do not overflow
        count *= extent
    start = stream.tell()
    if min(shape, default=1) < 0 or count * dtype.itemsize != len(data) - start:
        raise DataError(f"{path} announces shape {shape} for {name!r} and has {len(data) - start:,} bytes; replace it")
    return np.frombuffer(data, dtype, offset=start).reshape(shape)


def _check_offsets(offsets: np.ndarray, joined: np.ndarray, labels: np.ndarray, path: Path) -> None:
    """Refuse offsets that are not n + 1 rising positions from 0 to the end of the joined files."""
    if offsets.dtype != np.int64 or offsets.shape != (len(labels) + 1,) or joined.ndim != 1 or labels.ndim != 1:
        raise DataError(
            f"{path} holds offsets of type {offsets.dtype} and shape {offsets.shape} for {len(labels):,} labels; "
            "they have to be int64 and one more than the labels"
        )
    if offsets[0] != 0 or offsets[-1] != len(joined) or (offsets[1:] <= offsets[:-1]).any():
        raise DataError(f"{path} holds offsets that do not rise from 0 to {len(joined):,}; replace the file")


def _decode(joined: np.ndarray, offsets: np.ndarray, kind: Kind, path: Path) -> np.ndarray:
    """The pixels of every JPEG file; the size in a file's header is checked before its pixels are decoded."""
    from PIL import Image

    height, width, _ = kind.shape
    images = np.empty((len(offsets) - 1, *kind.shape), np.uint8)
    files = joined.tobytes()
    with warnings.catch_warnings():
        # Pillow only warns of an image that is merely suspiciously large.
        warnings.simplefilter("error")
        for number, (start, stop) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist())):
            with Image.open(io.BytesIO(files[start:stop]), formats=("JPEG",)) as image:
                if image.size != (width, height) or image.mode != "RGB":
                    size = f"{image.size[0]} x {image.size[1]} {image.mode}"
                    raise DataError(f"{path} holds image {number} as {size} and {kind.name} has {width} x {height} RGB")
                images[number] = np.asarray(image)
    return images
