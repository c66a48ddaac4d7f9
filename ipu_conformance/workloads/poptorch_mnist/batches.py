"""Digits as tensors, normalised with the mean and the spread of the training images."""

from __future__ import annotations

from typing import Tuple

import numpy as np
import torch
from torch.utils.data import TensorDataset

from ipu_conformance.data import Split, load
from ipu_conformance.workloads.poptorch_mnist.settings import Settings


def datasets(settings: Settings) -> Tuple[TensorDataset, TensorDataset]:
    """The training and the test set: images ``float32 [N, 1, 28, 28]`` and labels ``int64 [N]``."""
    digits = load(settings.data, train=settings.train_size, test=settings.test_size)
    mean, spread = float(digits.train.images.mean()), float(digits.train.images.std())
    return _tensors(digits.train, mean, spread), _tensors(digits.test, mean, spread)


def _tensors(split: Split, mean: float, spread: float) -> TensorDataset:
    images = np.subtract(split.images, mean, dtype=np.float32)
    images /= np.float32(spread)
    return TensorDataset(
        torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))),
        torch.from_numpy(split.labels.astype(np.int64)),
    )


def order(settings: Settings) -> torch.Generator:
    """What the order of the training samples is drawn from; it is the same on every target."""
    return torch.Generator().manual_seed(settings.seed)
