"""Keras' and torchvision's own loaders of MNIST and CIFAR-10, changed to read what is on this machine first.

`ipu-conformance emulate` applies these functions as the libraries are imported. Where a set is nowhere to be found the
loaders do what they always did.
"""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import Any

import numpy as np

from ipu_conformance.data import caches
from ipu_conformance.data.loading import load
from ipu_conformance.data.places import Location, find

logger = logging.getLogger("ipu_conformance.data")


def _found(name: str) -> Any:
    location = find(name)
    return location if location is not None and not location.missing else None


def _tell(loader: str, location: Location) -> None:
    logger.warning("%s reads %s in %s (%s)", loader, location.format, location.folder, location.origin)


def change_keras(module: Any) -> None:
    """``load_data`` of ``keras.datasets.mnist`` or ``cifar10`` gives what this machine has."""
    stock = getattr(module, "load_data", None)
    name = module.__name__.rpartition(".")[2]
    if stock is None or hasattr(stock, "__wrapped__"):
        return

    @functools.wraps(stock)
    def load_data(*arguments: Any, **words: Any) -> Any:
        location = _found(name)
        if location is None:
            return stock(*arguments, **words)
        _tell(f"keras.datasets.{name}.load_data", location)
        data = load(name)
        return tuple(_as_keras_has_it(module, name, split) for split in (data.train, data.test))

    module.load_data = load_data


def _as_keras_has_it(module: Any, name: str, split: Any) -> Any:
    if name == "mnist":
        return np.array(split.images[..., 0]), np.array(split.labels)
    images = np.array(split.images)
    if module.backend.image_data_format() == "channels_first":
        images = images.transpose(0, 3, 1, 2)
    return images, np.array(split.labels).reshape(-1, 1)


def change_torch_mnist(module: Any) -> None:
    """``download`` of ``torchvision.datasets.MNIST`` writes the files that it would have fetched."""
    stock = module.MNIST.download

    @functools.wraps(stock)
    def download(self: Any) -> None:
        location = _found("mnist") if type(self) is module.MNIST and not self._check_exists() else None
        if location is not None:
            _tell("torchvision.datasets.MNIST", location)
            caches.fill_torch_mnist(location, Path(self.root), logger.info)
        stock(self)  # which downloads what is missing, and that is nothing now

    module.MNIST.download = download


def change_torch_cifar10(module: Any) -> None:
    """``download`` of ``torchvision.datasets.CIFAR10`` unpacks the original archive, if this machine has it."""
    stock = module.CIFAR10.download

    @functools.wraps(stock)
    def download(self: Any) -> None:
        location = _found("cifar10") if type(self) is module.CIFAR10 and not self._check_integrity() else None
        archive = None if location is None else caches.original_archive(location)
        if location is not None and archive is not None:
            _tell("torchvision.datasets.CIFAR10", location)
            caches.place(archive, Path(self.root) / self.filename)
        stock(self)  # which finds the archive by its digest

    module.CIFAR10.download = download
