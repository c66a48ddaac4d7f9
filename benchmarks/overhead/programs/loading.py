"""A program whose pictures sixteen workers make: on the emulated PopTorch, or with ``--plain`` in torch alone."""

from __future__ import annotations

import sys
from typing import Any, Tuple

import torch

WORKERS, MICRO_BATCH, ITERATIONS, EPOCHS = 16, 16, 4, 2


class Pictures(torch.utils.data.Dataset):
    """Noise that is drawn when it is asked for."""

    def __len__(self) -> int:
        return 8000

    def __getitem__(self, index: int) -> Tuple[torch.Tensor, int]:
        return torch.randn(1, 28, 28, generator=torch.Generator().manual_seed(index)), index % 10


class Network(torch.nn.Module):
    """A convolution and a layer, with the loss."""

    def __init__(self) -> None:
        super().__init__()
        layers = (torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten())
        self.layers = torch.nn.Sequential(*layers, torch.nn.Linear(8 * 13 * 13, 10))

    def forward(self, pictures: torch.Tensor, labels: torch.Tensor) -> Any:
        logits = self.layers(pictures)
        return logits, torch.nn.functional.cross_entropy(logits, labels)


def emulated(network: torch.nn.Module, optimizer: Any) -> None:
    """Train as a program of PopTorch does."""
    import poptorch

    options = poptorch.Options().deviceIterations(ITERATIONS)
    mode = poptorch.DataLoaderMode.Async
    loader = poptorch.DataLoader(options, Pictures(), batch_size=MICRO_BATCH, num_workers=WORKERS, mode=mode)
    model = poptorch.trainingModel(network, options, optimizer)
    for _ in range(EPOCHS):
        for batch in loader:
            model(*batch)


def plain(network: torch.nn.Module, optimizer: Any) -> None:
    """Train as a program of torch does."""
    size = MICRO_BATCH * ITERATIONS
    loader = torch.utils.data.DataLoader(Pictures(), batch_size=size, num_workers=WORKERS, persistent_workers=True)
    for _ in range(EPOCHS):
        for pictures, labels in loader:
            for part, answers in zip(pictures.split(MICRO_BATCH), labels.split(MICRO_BATCH)):
                optimizer.zero_grad()
                network(part, answers)[1].backward()
                optimizer.step()


if __name__ == "__main__":
    chosen = Network()
    (plain if "--plain" in sys.argv else emulated)(chosen, torch.optim.SGD(chosen.parameters(), lr=0.01))
