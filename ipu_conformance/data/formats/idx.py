"""MNIST's own format: a big-endian header of magic number and dimensions, then bytes; plain or gzip."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Optional, Tuple

import numpy as np

from ipu_conformance.data.dataset import DataError, Kind, Split
from ipu_conformance.data.formats.bounded import open_maybe_gzip, read_all, refusing
from ipu_conformance.data.formats.checked import check_count, checked_split, first

UINT8 = 0x08
IMAGE_FILES = {"train": "train-images-idx3-ubyte", "test": "t10k-images-idx3-ubyte"}
LABEL_FILES = {"train": "train-labels-idx1-ubyte", "test": "t10k-labels-idx1-ubyte"}


def read_idx_split(kind: Kind, split: str, images: Path, labels: Path, count: Optional[int]) -> Split:
    """The split of an image file and a label file."""
    pixels = read_idx(kind, split, images, kind.shape[:2])
    numbers = read_idx(kind, split, labels, ())
    if len(pixels) != len(numbers):
        raise DataError(
            f"{images} holds {len(pixels):,} images and {labels.name} {len(numbers):,} labels; replace one of the two"
        )
    return first(checked_split(kind, split, pixels, numbers, images), count)


def read_idx(kind: Kind, split: str, path: Path, item: Tuple[int, ...]) -> np.ndarray:
    """The uint8 array of an idx file of items of the shape ``item``; the header is checked before allocating."""
    rank = 1 + len(item)
    header = 4 + 4 * rank
    item_size = int(np.prod(item, dtype=np.int64))
    what = f"an idx{rank} file of unsigned bytes"
    with refusing(path, what), open_maybe_gzip(path, header + kind.size(split) * item_size) as stream:
        dimensions = parse_idx_header(stream.read(header), rank, path, what)
        if dimensions[1:] != item:
            wrong, right = (" x ".join(map(str, shape)) for shape in (dimensions[1:], item))
            raise DataError(f"{path} holds images of {wrong} and {kind.name} has {right}; replace it")
        check_count(kind, split, dimensions[0], path)
        data = read_all(stream, dimensions[0] * item_size)
    return np.frombuffer(data, np.uint8).reshape(dimensions)


def parse_idx_header(header: bytes, rank: int, path: Path, what: str) -> Tuple[int, ...]:
    """The dimensions in an idx header of ``rank`` dimensions of unsigned bytes."""
    if len(header) < 4 + 4 * rank:
        raise DataError(f"{path} ends within its header; it should be {what}; replace the file")
    zero, dtype, found = struct.unpack_from(">HBB", header)
    if zero or found != rank:
        raise DataError(f"{path} does not begin like {what}; replace the file")
    if dtype != UINT8:
        raise DataError(f"{path} holds items of idx type 0x{dtype:02x} and not unsigned bytes (0x08); replace the file")
    return struct.unpack_from(f">{rank}I", header, 4)


def idx_bytes(array: np.ndarray) -> bytes:
    """The idx file that holds a uint8 array, as the original files are written."""
    return struct.pack(f">HBB{array.ndim}I", 0, UINT8, array.ndim, *array.shape) + array.tobytes()
