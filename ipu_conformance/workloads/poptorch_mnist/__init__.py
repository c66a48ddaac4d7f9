"""Digits with PopTorch: two convolutional blocks and two linear layers, trained with SGD, evaluated on the test set."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from ipu_conformance.workloads import WorkloadError, options
from ipu_conformance.workloads.options import Budget, Budgets

NAME = "poptorch-mnist"

BUDGETS: Budgets = {
    "synthetic-digits": Budget(epochs=3, train_size=4000, test_size=2000),
    "mnist": Budget(epochs=10, train_size=60_000, test_size=10_000),
}


@dataclass(frozen=True)
class Settings:
    """One run; the defaults are those of the baseline."""

    data: str = options.data_set(BUDGETS)
    epochs: int = options.budgeted(BUDGETS, "epochs", "passes over the training set")
    train_size: int = options.budgeted(BUDGETS, "train_size", least=None)
    test_size: int = options.budgeted(BUDGETS, "test_size", least=None)
    batch_size: int = options.number(8, "samples of one weight update")
    test_batch_size: int = options.number(80, "samples of one inference")
    device_iterations: int = options.number(50, "batches that one call of the model takes")
    seed: int = options.number(0, "chooses initial weights, dropout and the order of the samples", least=None)
    learning_rate: float = options.learning_rate(0.03)
    dropout: float = 0.5

    def __post_init__(self) -> None:
        options.check_numbers(self, seed_bits=63)
        if self.train_size < self.combined_batch:
            raise WorkloadError(
                f"--train-size is {self.train_size}, and one call of the model takes {self.combined_batch} samples "
                f"({self.device_iterations} device iterations of {self.batch_size}); give at least as many"
            )
        if self.test_size < 1 or self.test_size % self.test_batch_size:
            raise WorkloadError(
                f"--test-size is {self.test_size}, which --test-batch-size {self.test_batch_size} does not divide; "
                "give a multiple of it, so that every test sample counts"
            )

    @property
    def combined_batch(self) -> int:
        """The samples of one call of the training model."""
        return self.batch_size * self.device_iterations

    @property
    def test_iterations(self) -> int:
        """The most device iterations, up to those of training, with which no test sample is left over."""
        batches = self.test_size // self.test_batch_size
        return max(n for n in range(1, min(batches, self.device_iterations) + 1) if batches % n == 0)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options; a size that is not given follows from the data set."""
    options.add(parser, Settings)


def run(args: argparse.Namespace) -> int:
    """Train and evaluate; the last line is the accuracy on the test set.

    The exit code is 1 if there are baselines of these settings and the run leaves the band of one.
    """
    settings = settings_of(args)
    from ipu_conformance.workloads.poptorch_mnist.reference import judgements
    from ipu_conformance.workloads.poptorch_mnist.training import train
    from ipu_conformance.workloads.reference import show

    result = train(settings, native=args.native, progress=True)
    return show(judgements(settings, result), result.accuracies[-1])


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings that the options ask for."""
    settings: Settings = options.read(Settings, args, BUDGETS)
    return settings
