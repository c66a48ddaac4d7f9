"""Digits with PopTorch: two convolutional blocks and two linear layers, trained with SGD, evaluated on the test set."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ipu_conformance.workloads.digits import choose_data
from ipu_conformance.workloads.poptorch_mnist.settings import BUDGETS, NAME, Settings

__all__ = ["NAME", "Settings", "configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options; a size that is not given follows from the data set."""
    defaults = Settings()
    parser.add_argument(
        "--data",
        choices=("auto", *BUDGETS),
        default="auto",
        help="auto takes mnist where IPU_CONFORMANCE_DATA holds it, else synthetic-digits (%(default)s)",
    )
    for option, what in (("epochs", "passes over the training set"), ("train_size", "samples to train on"),
                         ("test_size", "samples to test on")):  # fmt: skip
        sizes = ", ".join(f"{getattr(budget, option):,} for {name}" for name, budget in BUDGETS.items())
        parser.add_argument(_flag(option), type=int, metavar="N", help=f"{what} ({sizes})")
    for option, what in (
        ("batch_size", "samples of one weight update"),
        ("test_batch_size", "samples of one inference"),
        ("device_iterations", "batches that one call of the model takes"),
        ("seed", "chooses initial weights, dropout and the order of the samples"),
    ):
        parser.add_argument(
            _flag(option), type=int, default=getattr(defaults, option), metavar="N", help=f"{what} (%(default)s)"
        )
    parser.add_argument(
        "--lr", type=float, default=defaults.learning_rate, metavar="RATE", help="learning rate (%(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    """Train and evaluate; the last line is the accuracy on the test set.

    The exit code is 1 if there are baselines of these settings and the run leaves the band of one.
    """
    data = choose_data(args.data)
    budget = BUDGETS[data]
    settings = Settings(
        data=data,
        epochs=_given(args.epochs, budget.epochs),
        train_size=_given(args.train_size, budget.train_size),
        test_size=_given(args.test_size, budget.test_size),
        batch_size=args.batch_size,
        test_batch_size=args.test_batch_size,
        device_iterations=args.device_iterations,
        learning_rate=args.lr,
        seed=args.seed,
    )
    from ipu_conformance.workloads.poptorch_mnist.reference import judgements
    from ipu_conformance.workloads.poptorch_mnist.training import train

    result = train(settings, native=args.native, progress=True)
    verdicts = judgements(settings, result)
    for verdict in verdicts:
        print(verdict.sentence, file=sys.stdout if verdict.passed else sys.stderr, flush=True)
    print(f"Accuracy on test set: {100 * result.accuracies[-1]:.2f}%")
    return 0 if all(verdict.passed for verdict in verdicts) else 1


def _flag(option: str) -> str:
    return "--" + option.replace("_", "-")


def _given(value: Any, default: Any) -> Any:
    return default if value is None else value
