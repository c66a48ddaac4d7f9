"""The training loop: epochs with a progress bar, each followed by an evaluation on the test set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Tuple

import torch
from torch.utils.data import TensorDataset

from ipu_conformance.workloads import bars
from ipu_conformance.workloads.poptorch_mnist import Settings
from ipu_conformance.workloads.poptorch_mnist.model import Network, datasets
from ipu_conformance.workloads.poptorch_mnist.trainers import Batches, IpuTrainer, NativeTrainer, Trainer


@dataclass(frozen=True)
class Result:
    """The loss of every batch in order, and after each epoch the share of test samples that are recognised."""

    losses: Tuple[float, ...]
    accuracies: Tuple[float, ...]
    network: Network


def train(settings: Settings, *, native: bool, progress: bool = False) -> Result:
    """Train a new network; with ``native`` no IPU API is touched."""
    training, test = datasets(settings)
    torch.manual_seed(settings.seed)
    network = Network(settings.dropout)
    trainer: Trainer = NativeTrainer(network, settings) if native else IpuTrainer(network, settings)
    losses: List[float] = []
    accuracies: List[float] = []
    training_batches, test_batches = trainer.training_batches(training), trainer.test_batches(test)
    for epoch in range(1, settings.epochs + 1):
        losses += train_epoch(trainer, training_batches, title=f"Epoch {epoch}/{settings.epochs}" if progress else "")
        trainer.stop_training()
        accuracies.append(evaluate(trainer, test_batches, test, title="Test" if progress else ""))
    return Result(tuple(losses), tuple(accuracies), network)


def train_epoch(trainer: Trainer, batches: Batches, *, title: str = "") -> List[float]:
    """The loss of every batch of one epoch; the bar shows the mean loss and the accuracy of the last call."""
    losses: List[float] = []
    with bars.bar(batches, title=title, unit="call") as bar:
        for images, labels in bar:
            scores, batch_losses = trainer.train(images, labels)
            losses += batch_losses.reshape(-1).tolist()  # one device iteration gives a number, not a list
            accuracy = (scores.argmax(1) == labels).float().mean().item()
            bar.set_postfix_str(f"loss {batch_losses.mean().item():.4f}, accuracy {100 * accuracy:.2f}%")
    return losses


def evaluate(trainer: Trainer, batches: Batches, test: TensorDataset, *, title: str = "") -> float:
    """The share of all test samples that are recognised."""
    right = seen = 0
    with bars.bar(batches, title=title, unit="call") as bar:
        for images, labels in bar:
            right += int((trainer.classify(images).argmax(1) == labels).sum())
            seen += len(labels)
            bar.set_postfix_str(f"accuracy {100 * right / seen:.2f}%")
    if seen != len(test):
        raise RuntimeError(f"{seen} of {len(test)} test samples were evaluated; the loader left some out")
    return right / seen
