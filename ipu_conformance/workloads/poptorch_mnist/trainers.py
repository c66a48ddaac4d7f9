"""The two ways to run the network: on IPUs with PopTorch, and natively in plain PyTorch."""

from __future__ import annotations

from typing import Any, Iterable, List, Protocol, Tuple

import torch
from torch.utils.data import DataLoader, TensorDataset

from ipu_conformance.workloads.poptorch_mnist import Settings
from ipu_conformance.workloads.poptorch_mnist.model import Network, order

Batches = Iterable[Tuple[torch.Tensor, torch.Tensor]]


class Trainer(Protocol):
    """What the training loop needs; both trainers take the same combined batches in the same order."""

    def training_batches(self, data: TensorDataset) -> Batches:
        """The combined batches of one epoch, in a new order each time they are gone through."""

    def test_batches(self, data: TensorDataset) -> Batches:
        """All test samples, in their order."""

    def train(self, images: torch.Tensor, labels: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        """One update for each batch of a combined batch; the scores of every sample, the loss of every batch."""

    def stop_training(self) -> None:
        """Leave the device to the evaluation."""

    def classify(self, images: torch.Tensor) -> torch.Tensor:
        """The scores of every sample."""


class IpuTrainer:
    """The network on IPUs: one call trains ``device_iterations`` batches and returns what each of them gave."""

    def __init__(self, network: Network, settings: Settings) -> None:
        import poptorch

        self._poptorch = poptorch
        self._settings = settings
        self._options = poptorch.Options().deviceIterations(settings.device_iterations).randomSeed(settings.seed)
        return_everything(poptorch, self._options)
        self._test_options = poptorch.Options().deviceIterations(settings.test_iterations)
        optimizer = torch.optim.SGD(network.parameters(), lr=settings.learning_rate)
        self.training_model = poptorch.trainingModel(network, options=self._options, optimizer=optimizer)
        self.inference_model = poptorch.inferenceModel(network, options=self._test_options)

    def training_batches(self, data: TensorDataset) -> Batches:
        return self._poptorch.DataLoader(
            self._options,
            data,
            batch_size=self._settings.batch_size,
            shuffle=True,
            generator=order(self._settings),
        )

    def test_batches(self, data: TensorDataset) -> Batches:
        return self._poptorch.DataLoader(self._test_options, data, batch_size=self._settings.test_batch_size)

    def train(self, images: torch.Tensor, labels: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        self.training_model.train()
        scores, losses = self.training_model(images, labels)
        return scores, losses

    def stop_training(self) -> None:
        if self.inference_model.isAttachedToDevice():
            self.inference_model.detachFromDevice()
        self.training_model.detachFromDevice()

    def classify(self, images: torch.Tensor) -> torch.Tensor:
        self.inference_model.eval()
        return self.inference_model(images)


def return_everything(poptorch: Any, options: Any) -> None:
    """Ask for the outputs of every batch, in the words of the SDK that is there: older ones say anchor."""
    if hasattr(poptorch, "OutputMode"):
        options.outputMode(poptorch.OutputMode.All)
    else:
        options.anchorMode(poptorch.AnchorMode.All)


class NativeTrainer:
    """The same network, batches and updates without any IPU API."""

    def __init__(self, network: Network, settings: Settings) -> None:
        self._network = network
        self._settings = settings
        self._optimizer = torch.optim.SGD(network.parameters(), lr=settings.learning_rate)

    def training_batches(self, data: TensorDataset) -> Batches:
        return DataLoader(
            data,
            batch_size=self._settings.combined_batch,
            shuffle=True,
            drop_last=True,
            generator=order(self._settings),
        )

    def test_batches(self, data: TensorDataset) -> Batches:
        return DataLoader(data, batch_size=self._settings.test_batch_size * self._settings.test_iterations)

    def train(self, images: torch.Tensor, labels: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        self._network.train()
        scores: List[torch.Tensor] = []
        losses: List[torch.Tensor] = []
        size = self._settings.batch_size
        for batch_images, batch_labels in zip(images.split(size), labels.split(size)):
            self._optimizer.zero_grad()
            score, loss = self._network(batch_images, batch_labels)
            loss.backward()
            self._optimizer.step()
            scores.append(score.detach())
            losses.append(loss.detach())
        return torch.cat(scores), torch.stack(losses)

    def stop_training(self) -> None:
        self._network.eval()

    def classify(self, images: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return torch.cat([self._network(batch) for batch in images.split(self._settings.test_batch_size)])
