"""The network in plain PyTorch, the same for an IPU and for the native twin, and the digits that it is fed."""

from __future__ import annotations

from typing import Optional, Tuple, Union

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from ipu_conformance.data import Split, load
from ipu_conformance.workloads.poptorch_mnist import Settings


class Block(nn.Module):
    """A convolution, a maximum pool and a ReLU."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int, pool: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels_in, channels_out, kernel)
        self.pool = nn.MaxPool2d(pool)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.pool(self.convolution(images)))


class Network(nn.Module):
    """Two blocks, a linear layer with dropout and a linear classifier; given labels, it also returns its loss."""

    def __init__(self, dropout: float = 0.5) -> None:
        super().__init__()
        self.block1 = Block(1, 32, 3, 2)
        self.block2 = Block(32, 64, 3, 2)
        self.hidden = nn.Linear(1600, 128)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(128, 10)
        self.loss = nn.CrossEntropyLoss()

    def forward(
        self, images: torch.Tensor, labels: Optional[torch.Tensor] = None
    ) -> Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]:
        features = torch.flatten(self.block2(self.block1(images)), 1)
        scores = self.classifier(self.dropout(torch.relu(self.hidden(features))))
        if labels is None:
            return scores
        return scores, self.loss(scores, labels)


def datasets(settings: Settings) -> Tuple[TensorDataset, TensorDataset]:
    """The training and the test set: images ``float32 [N, 1, 28, 28]`` and labels ``int64 [N]``.

    Images are normalised with the mean and the spread of the training images.
    """
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
