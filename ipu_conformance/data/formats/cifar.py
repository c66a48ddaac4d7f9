"""CIFAR-10's own formats: pickled or binary batches, in a folder or in the tar.gz that they are published in."""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePosixPath
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.data.dataset import DataError, Kind, Split
from ipu_conformance.data.formats.bounded import Bounded, open_maybe_gzip, read_all, refusing
from ipu_conformance.data.formats.checked import checked_split
from ipu_conformance.data.formats.tar import exactly, members, padded, skip
from ipu_conformance.data.formats.unpickle import load_plain

BATCHES: Mapping[str, Tuple[str, ...]] = {
    "train": tuple(f"data_batch_{number}" for number in range(1, 6)),
    "test": ("test_batch",),
}
PICKLED_FOLDER, BINARY_FOLDER = "cifar-10-batches-py", "cifar-10-batches-bin"

_BATCH = 10_000
_PIXELS = 3 * 32 * 32
_RECORD = 1 + _PIXELS
_PICKLE_ROOM = _BATCH * (_RECORD + 200) + 65_536
"""Bytes of a pickled batch: the pixels, and for every image its label and file name."""
_ARCHIVE_ROOM = 6 * _PICKLE_ROOM + (1 << 20)

Arrays = Tuple[np.ndarray, np.ndarray]


def read_folder_split(kind: Kind, split: str, folder: Path, count: Optional[int], *, binary: bool) -> Split:
    """The split of a folder of batches; only the batches that hold the first ``count`` images are read."""

    def read(batch: str) -> Arrays:
        path = folder / (batch + ".bin" if binary else batch)
        expected = "a binary CIFAR-10 batch" if binary else "a pickled CIFAR-10 batch"
        with refusing(path, expected), path.open("rb") as raw:
            bounded = Bounded(raw, _BATCH * _RECORD if binary else _PICKLE_ROOM, path)
            return _parse(read_all(bounded, path.stat().st_size), path, binary=binary)

    return _join(kind, split, _until(count, map(read, BATCHES[split])), folder, count)


def read_tar_split(kind: Kind, split: str, path: Path, count: Optional[int]) -> Split:
    """The split of a tar.gz of either kind of batches, read in memory: nothing is extracted to the disk."""
    with refusing(path, "a tar.gz of CIFAR-10 batches"):
        members, binary = _tar_members(path, BATCHES[split])
        parts = _until(count, (_parse(members[batch], path, binary=binary) for batch in BATCHES[split]))
    return _join(kind, split, parts, path, count)


def _until(count: Optional[int], batches: Iterable[Arrays]) -> List[Arrays]:
    """The batches up to the one that holds image number ``count``."""
    parts: List[Arrays] = []
    for batch in batches:
        parts.append(batch)
        if count is not None and sum(len(labels) for _, labels in parts) >= count:
            break
    return parts


def _tar_members(path: Path, batches: Sequence[str]) -> Tuple[Dict[str, bytes], bool]:
    """The contents of the wanted batches by name, and whether they are binary; hostile members are refused."""
    found: Dict[str, bytes] = {}
    binary = False
    with open_maybe_gzip(path, _ARCHIVE_ROOM) as stream:
        for member in members(stream):
            name = PurePosixPath(member.name)
            if name.is_absolute() or ".." in name.parts or "\\" in member.name:
                raise DataError(f"{path} holds the name {member.name!r}, which leaves its folder; replace the file")
            if not (member.is_file or member.is_folder):
                raise DataError(f"{path} holds {member.name!r}, which is a link or a device; replace the file")
            stem = name.name[:-4] if name.name.endswith(".bin") else name.name
            if not member.is_file or stem not in batches:
                skip(stream, padded(member.size))
                continue
            if member.size > _PICKLE_ROOM or stem in found:
                raise DataError(f"{path} holds {member.name!r} twice or with {member.size:,} bytes; replace the file")
            found[stem] = exactly(stream, padded(member.size))[: member.size]
            binary = name.name.endswith(".bin")
    missing = [batch for batch in batches if batch not in found]
    if missing:
        raise DataError(f"{path} lacks {', '.join(missing)}; replace the file")
    return found, binary


def _parse(data: bytes, path: Path, *, binary: bool) -> Arrays:
    """Images ``[n, 3, 32, 32]`` and labels of one batch."""
    return _parse_binary(data, path) if binary else _parse_pickle(data, path)


def _parse_binary(data: bytes, path: Path) -> Arrays:
    """Records of a label byte and three planes of pixels."""
    if not data or len(data) % _RECORD:
        raise DataError(f"{path} has {len(data):,} bytes in a batch, not a multiple of {_RECORD:,}; replace the file")
    records = np.frombuffer(data, np.uint8).reshape(-1, _RECORD)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def _parse_pickle(data: bytes, path: Path) -> Arrays:
    """The dictionary with ``data`` and ``labels`` that a pickled batch is."""
    batch = load_plain(data)
    if not isinstance(batch, dict) or not {"data", "labels"} <= set(batch):
        raise DataError(f"{path} holds a pickle without data and labels; replace the file")
    pixels, labels = batch["data"], batch["labels"]
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (_PIXELS,):
        described = f"{pixels.dtype} of shape {pixels.shape}" if isinstance(pixels, np.ndarray) else "no array"
        raise DataError(f"{path} holds pixels as {described} and uint8 of shape (n, {_PIXELS}) is expected; replace it")
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label <= 9 for label in labels):
        raise DataError(f"{path} holds labels that are not a list of numbers from 0 to 9; replace the file")
    return pixels.reshape(-1, 3, 32, 32), np.array(labels, np.uint8)


def _join(kind: Kind, split: str, parts: Sequence[Arrays], path: Path, count: Optional[int]) -> Split:
    """The batches one after the other, with the channels last."""
    total = sum(len(images) for images, _ in parts)
    images = np.empty((total if count is None else min(count, total), 32, 32, 3), np.uint8)
    start = 0
    for part, _ in parts:  # one by one: a copy of all of them would double the memory
        kept = part[: len(images) - start]
        images[start : start + len(kept)] = kept.transpose(0, 2, 3, 1)
        start += len(kept)
    labels = np.concatenate([labels for _, labels in parts])
    if total != len(labels):
        raise DataError(f"{path} holds {len(labels):,} labels for another number of images; replace it")
    return checked_split(kind, split, images, labels[:count], path)


def batch_digests(split: Split) -> List[str]:
    """The SHA-256 of each 10,000 images written as a binary batch: the same for every original format."""
    digests = []
    for start in range(0, len(split), _BATCH):
        part = slice(start, start + _BATCH)
        planes = split.images[part].transpose(0, 3, 1, 2).reshape(-1, _PIXELS)
        records = np.concatenate([split.labels[part, None], planes], axis=1)
        digests.append(hashlib.sha256(records.tobytes()).hexdigest())
    return digests
