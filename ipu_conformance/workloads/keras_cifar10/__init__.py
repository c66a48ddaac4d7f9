"""Small pictures with Keras: a convolutional network, trained with SGD, evaluated on the test set."""

from __future__ import annotations

import argparse
import importlib

from ipu_conformance.workloads import WorkloadError
from ipu_conformance.workloads.folders import make_folder
from ipu_conformance.workloads.keras_cifar10.settings import APPROACHES, BUDGETS, LAYERS, NAME, USUAL, Settings
from ipu_conformance.workloads.keras_options import (
    add_data,
    add_folder,
    add_numbers,
    draw_samples,
    expect_ipu_placement,
    given,
    show,
)
from ipu_conformance.workloads.real_data import choose

__all__ = ["NAME", "Settings", "configure", "run"]

REAL, SYNTHETIC = "cifar10", "synthetic-cifar"
OF_APPROACH = {
    "ipus": "IPUs: replicas, which share a batch equally, or pipelines of two",
    "gradient_accumulation_count": "micro-batches into which a replica's share of a batch is divided",
}
"""The options whose defaults follow from the approach."""


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
        batch_size="samples of one weight update, whatever the approach",
        seed="chooses initial weights, dropout and the order of the samples",
    )
    for option, what in OF_APPROACH.items():
        usual = ", ".join(f"{getattr(each, option)} for {name}" for name, each in USUAL.items())
        parser.add_argument("--" + option.replace("_", "-"), type=int, metavar="N", help=f"{what} ({usual})")
    parser.add_argument(
        "--model-shard-position",
        type=int,
        metavar="N",
        help=f"layers of a pipeline's first stage, from 1 to {LAYERS - 1} (the first block)",
    )
    parser.add_argument("--no-dropout", action="store_true", help="leave dropout out: no random numbers while training")
    parser.add_argument(
        "--lr", type=float, default=defaults.learning_rate, metavar="RATE", help="learning rate (%(default)s)"
    )
    add_folder(parser, "keras_cifar10")


def run(args: argparse.Namespace) -> int:
    """Draw some samples, train and classify the test set; the last line is the accuracy."""
    settings = settings_of(args)
    make_folder(args.folder)
    draw_samples(settings.data, args.folder)
    expect_ipu_placement()
    train = importlib.import_module(APPROACHES[settings.approach]).train
    result = train(settings, native=args.native, progress=True, say=lambda line: print(line, flush=True))
    return show((), result.accuracy)


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings that the options ask for."""
    data = choose(args.data, real=REAL, synthetic=SYNTHETIC)
    budget = BUDGETS[data]
    usual = USUAL.get(args.approach, USUAL[Settings.approach])
    if args.native:
        _refuse_on_host(args)
    return Settings(
        approach=args.approach,
        data=data,
        epochs=given(args.epochs, budget.epochs),
        train_size=given(args.train_size, budget.train_size),
        test_size=given(args.test_size, budget.test_size),
        batch_size=args.batch_size,
        learning_rate=args.lr,
        seed=args.seed,
        ipus=given(args.ipus, usual.ipus),
        gradient_accumulation_count=given(args.gradient_accumulation_count, usual.gradient_accumulation_count),
        model_shard_position=args.model_shard_position,
        dropout=not args.no_dropout,
    )


def _refuse_on_host(args: argparse.Namespace) -> None:
    """The native twin is one model that takes a batch at once."""
    for option in OF_APPROACH:
        if given(getattr(args, option), 1) > 1:
            flag = "--" + option.replace("_", "-")
            raise WorkloadError(
                f"{flag} is {getattr(args, option)}, and without IPUs there is one model on the host; leave {flag} "
                "out, or use IPUs"
            )
