"""Fills the folders in which Keras and torchvision look for MNIST and CIFAR-10, so that they need no network.

What is there already is left alone. Keras takes ``mnist.npz`` only with the digest of its own file, which is downloaded
if it can be; written here, it serves `ipu-conformance emulate` and whoever reads the file itself. CIFAR-10 is taken by
both as the original archive alone, which images that went through JPEG cannot give back.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Callable, List, Optional

import numpy as np

from ipu_conformance.atomic_write import replacing
from ipu_conformance.data.dataset import SPLITS, DataError
from ipu_conformance.data.download import download, sha256_of
from ipu_conformance.data.formats.idx import IMAGE_FILES, LABEL_FILES, idx_bytes
from ipu_conformance.data.loading import read_split
from ipu_conformance.data.mirrors import KERAS_MNIST, MIRRORED, Mirrored
from ipu_conformance.data.places import Location, keras_folder, torch_folder

Say = Callable[[str], None]

ARCHIVES = {"Keras": "cifar-10-batches-py.tar.gz", "torchvision": "cifar-10-python.tar.gz"}
"""What each library calls CIFAR-10's archive in its folder."""


def fill(location: Location, say: Say, *, keras: Optional[Mirrored] = KERAS_MNIST) -> List[Path]:
    """Put a data set into the folders of both libraries and give the files that are new; ``keras`` has Keras' own."""
    try:
        if location.name == "mnist":
            return [*_fill_keras_mnist(location, say, keras), *fill_torch_mnist(location, torch_folder(), say)]
        return _fill_cifar10(location, say)
    except OSError as error:
        raise DataError(f"the caches of Keras and torchvision cannot be written to ({error})") from error


def _fill_keras_mnist(location: Location, say: Say, keras: Optional[Mirrored]) -> List[Path]:
    path = keras_folder() / "mnist.npz"
    if path.exists():
        say(f"Keras has {path} already, which was left alone")
        return []
    path.parent.mkdir(parents=True, exist_ok=True)
    if keras is not None:
        try:
            download(keras.mirrors[0], keras.files[0], path.parent)
            say(f"keras.datasets.mnist finds {path}, from {keras.mirrors[0]}")
            return [path]
        except DataError:
            with suppress(FileNotFoundError):  # nobody would continue it here
                (path.parent / (path.name + ".part")).unlink()
    arrays = {}
    for split in SPLITS:
        samples = read_split(location, split)
        arrays[f"x_{split}"], arrays[f"y_{split}"] = samples.images[..., 0], samples.labels
    with replacing(path) as part, part.open("wb") as stream:
        np.savez_compressed(stream, **arrays)
    say(
        f"keras.datasets.mnist finds {path} under `ipu-conformance emulate`; elsewhere Keras wants a file with the "
        "digest of its own"
    )
    return [path]


def fill_torch_mnist(location: Location, root: Path, say: Say) -> List[Path]:
    """Write the four unpacked files that ``torchvision.datasets.MNIST(root)`` reads, below ``root/MNIST/raw``."""
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for split in SPLITS:
        names = IMAGE_FILES[split], LABEL_FILES[split]
        if all((folder / name).exists() for name in names):
            continue
        samples = read_split(location, split)
        for name, array in zip(names, (samples.images[..., 0], samples.labels)):
            with replacing(folder / name) as part:
                part.write_bytes(idx_bytes(array))
            written.append(folder / name)
    say(f"torchvision.datasets.MNIST(root={str(root)!r}) finds {folder}")
    return written


def _fill_cifar10(location: Location, say: Say) -> List[Path]:
    archive = original_archive(location)
    if archive is None:
        say(
            f"Keras and torchvision take cifar10 as its original archive only, and {location.folder} has "
            f"{location.format}"
        )
        return []
    written = []
    for library, folder in (("Keras", keras_folder()), ("torchvision", torch_folder())):
        path = folder / ARCHIVES[library]
        if not path.exists():
            place(archive, path)
            written.append(path)
        say(f"{library} finds {path}, and unpacks it there")
    return written


def original_archive(location: Location) -> Optional[Path]:
    """The archive of CIFAR-10 with the digest of the original, if a location has it."""
    (original,) = MIRRORED["cifar10"].files
    if location.format != "tar.gz" or sha256_of(location.files[0]) != original.sha256:
        return None
    return location.files[0]


def place(source: Path, path: Path) -> None:
    """Put a file at another place as a whole; a link where both are on one disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as part:
        try:
            os.link(str(source), str(part))
        except OSError:
            shutil.copyfile(str(source), str(part))
