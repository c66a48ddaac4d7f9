"""Digits with Keras: two dense layers, trained with SGD in the scope of a strategy, evaluated on the test set."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from ipu_conformance.workloads import WorkloadError, options
from ipu_conformance.workloads.options import Budget, Budgets

NAME = "keras-mnist"

BUDGETS: Budgets = {
    "synthetic-digits": Budget(epochs=4, train_size=4000, test_size=2000),
    "mnist": Budget(epochs=4, train_size=60_000, test_size=10_000),
}


@dataclass(frozen=True)
class Settings:
    """One run; the defaults are those of the baseline."""

    data: str = options.data_set(BUDGETS)
    epochs: int = options.budgeted(BUDGETS, "epochs", "times that the steps of an epoch are taken")
    train_size: int = options.budgeted(BUDGETS, "train_size")
    test_size: int = options.budgeted(BUDGETS, "test_size")
    steps_per_epoch: int = options.number(
        2000, "weight updates of an epoch; the training set is repeated as often as they need"
    )
    steps_per_execution: int = options.number(
        100, "updates that the device makes on its own; has to divide those of an epoch"
    )
    batch_size: int = options.number(32, "samples of one weight update")
    replicas: int = options.number(1, "replicas, of one IPU each, that share a batch equally")
    seed: int = options.number(0, "chooses initial weights and the order of the samples", least=None)
    learning_rate: float = options.learning_rate(0.01)

    def __post_init__(self) -> None:
        options.check_numbers(self)
        if self.steps_per_epoch % self.steps_per_execution:
            raise WorkloadError(
                f"--steps-per-execution is {self.steps_per_execution}, which does not divide the "
                f"{self.steps_per_epoch} of --steps-per-epoch; give a divisor of them"
            )
        options.check_equal_parts("--replicas", self.replicas, self.batch_size, self.test_size)

    @property
    def test_batch(self) -> int:
        """The test samples that a replica takes at once."""
        return options.largest_test_batch(self.replicas, self.test_size)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options; a size that is not given follows from the data set."""
    options.add(parser, Settings)
    options.add_picture_folder(parser, Path("keras_mnist"))


def run(args: argparse.Namespace) -> int:
    """Draw some samples, train and classify the test set; the last line is the accuracy.

    The exit code is 1 if there are baselines of these settings and the run leaves the band of one.
    """
    settings = settings_of(args)
    options.make_folder(args.folder)
    from ipu_conformance.workloads import plots
    from ipu_conformance.workloads.bars import say
    from ipu_conformance.workloads.keras_mnist.reference import judgements
    from ipu_conformance.workloads.keras_mnist.training import train
    from ipu_conformance.workloads.reference import show

    plots.show_samples(settings.data, args.folder)
    result = train(settings, native=args.native, progress=True, say=say)
    return show(judgements(settings, result), result.accuracy)


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings that the options ask for."""
    settings: Settings = options.read(Settings, args, BUDGETS)
    if args.native and settings.replicas > 1:
        raise WorkloadError(
            f"--replicas is {settings.replicas}, and without IPUs there is one model on the host; leave --replicas "
            "out, or use IPUs"
        )
    return settings
