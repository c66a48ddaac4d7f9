"""Small pictures with Keras: a convolutional network, trained with SGD, evaluated on the test set."""

from __future__ import annotations

import argparse
import importlib

from ipu_conformance.workloads import WorkloadError
from ipu_conformance.workloads.folders import make_folder
from ipu_conformance.workloads.keras_cifar10.settings import APPROACHES, BUDGETS, NAME, Settings
from ipu_conformance.workloads.keras_options import add_data, add_folder, add_numbers, draw_samples, given, show
from ipu_conformance.workloads.real_data import choose

__all__ = ["NAME", "Settings", "configure", "run"]

REAL, SYNTHETIC = "cifar10", "synthetic-cifar"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options; a size that is not given follows from the data set."""
    defaults = Settings()
    parser.add_argument(
        "--approach",
        default=defaults.approach,
        metavar="NAME",
        help=f"how the network is trained on IPUs: {', '.join(APPROACHES)} (%(default)s)",
    )
    add_data(parser, BUDGETS, real=REAL, synthetic=SYNTHETIC, epochs="passes over the training set")
    add_numbers(
        parser,
        defaults,
        batch_size="samples of one weight update",
        ipus="IPUs, each of which is a replica; they share a batch equally",
        seed="chooses initial weights, dropout and the order of the samples",
    )
    parser.add_argument(
        "--lr", type=float, default=defaults.learning_rate, metavar="RATE", help="learning rate (%(default)s)"
    )
    add_folder(parser, "keras_cifar10")


def run(args: argparse.Namespace) -> int:
    """Draw some samples, train and classify the test set; the last line is the accuracy."""
    settings = settings_of(args)
    make_folder(args.folder)
    draw_samples(settings.data, args.folder)
    train = importlib.import_module(APPROACHES[settings.approach]).train
    result = train(settings, native=args.native, progress=True, say=lambda line: print(line, flush=True))
    return show((), result.accuracy)


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings that the options ask for."""
    data = choose(args.data, real=REAL, synthetic=SYNTHETIC)
    budget = BUDGETS[data]
    settings = Settings(
        approach=args.approach,
        data=data,
        epochs=given(args.epochs, budget.epochs),
        train_size=given(args.train_size, budget.train_size),
        test_size=given(args.test_size, budget.test_size),
        batch_size=args.batch_size,
        learning_rate=args.lr,
        seed=args.seed,
        ipus=args.ipus,
    )
    if args.native and settings.ipus > 1:
        raise WorkloadError(
            f"--ipus is {settings.ipus}, and without IPUs there is one model on the host; leave --ipus out, or use IPUs"
        )
    return settings
