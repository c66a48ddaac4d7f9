"""The network: plain PyTorch, the same for an IPU and for the native twin."""

from __future__ import annotations

from typing import Optional, Tuple, Union

import torch
from torch import nn


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
