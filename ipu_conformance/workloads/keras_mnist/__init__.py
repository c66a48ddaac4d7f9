"""Digits with Keras: two dense layers, trained with SGD in the scope of a strategy, evaluated on the test set."""

from __future__ import annotations

import argparse

from ipu_conformance.workloads import WorkloadError
from ipu_conformance.workloads.digits import choose_data
from ipu_conformance.workloads.folders import make_folder
from ipu_conformance.workloads.keras_mnist.settings import BUDGETS, NAME, Settings
from ipu_conformance.workloads.keras_options import add_data, add_folder, add_numbers, draw_samples, given, show

__all__ = ["NAME", "Settings", "configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options; a size that is not given follows from the data set."""
    defaults = Settings()
    add_data(
        parser, BUDGETS, real="mnist", synthetic="synthetic-digits", epochs="times that the steps of an epoch are taken"
    )
    add_numbers(
        parser,
        defaults,
        steps_per_epoch="weight updates of an epoch; the training set is repeated as often as they need",
        steps_per_execution="updates that the device makes on its own; has to divide those of an epoch",
        batch_size="samples of one weight update",
        replicas="replicas, of one IPU each, that share a batch equally",
        seed="chooses initial weights and the order of the samples",
    )
    parser.add_argument(
        "--lr", type=float, default=defaults.learning_rate, metavar="RATE", help="learning rate (%(default)s)"
    )
    add_folder(parser, "keras_mnist")


def run(args: argparse.Namespace) -> int:
    """Draw some samples, train and classify the test set; the last line is the accuracy.

    The exit code is 1 if there are baselines of these settings and the run leaves the band of one.
    """
    settings = settings_of(args)
    make_folder(args.folder)
    from ipu_conformance.workloads.keras_mnist.reference import judgements
    from ipu_conformance.workloads.keras_mnist.training import train

    draw_samples(settings.data, args.folder)
    result = train(settings, native=args.native, progress=True, say=lambda line: print(line, flush=True))
    return show(judgements(settings, result), result.accuracy)


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings that the options ask for."""
    data = choose_data(args.data)
    budget = BUDGETS[data]
    settings = Settings(
        data=data,
        epochs=given(args.epochs, budget.epochs),
        steps_per_epoch=args.steps_per_epoch,
        steps_per_execution=args.steps_per_execution,
        train_size=given(args.train_size, budget.train_size),
        test_size=given(args.test_size, budget.test_size),
        batch_size=args.batch_size,
        learning_rate=args.lr,
        seed=args.seed,
        replicas=args.replicas,
    )
    if args.native and settings.replicas > 1:
        raise WorkloadError(
            f"--replicas is {settings.replicas}, and without IPUs there is one model on the host; leave --replicas "
            "out, or use IPUs"
        )
    return settings
