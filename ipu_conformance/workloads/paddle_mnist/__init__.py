"""Digits with Paddle: LeNet-5 as a static Program, trained with Adam, validated on the test set and saved."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ipu_conformance.workloads import WorkloadError
from ipu_conformance.workloads.digits import choose_data
from ipu_conformance.workloads.folders import make_folder
from ipu_conformance.workloads.paddle_mnist.options import add_folder, add_use_ipu
from ipu_conformance.workloads.paddle_mnist.places import CURVE, model_folder
from ipu_conformance.workloads.paddle_mnist.settings import BUDGETS, NAME, Settings

__all__ = ["NAME", "Settings", "configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options; a size that is not given follows from the data set."""
    defaults = Settings()
    add_use_ipu(parser)
    parser.add_argument(
        "--num_ipus", "--num-ipus", type=int, default=defaults.num_ipus, metavar="N", help="IPUs in all (%(default)s)"
    )
    parser.add_argument(
        "--no_pipelining",
        "--no-pipelining",
        action="store_true",
        help="where a replica has two IPUs, let one wait for the other",
    )
    parser.add_argument(
        "--replication-factor",
        "--replication_factor",
        type=int,
        default=defaults.replication_factor,
        metavar="N",
        help="replicas that share a batch; has to divide the IPUs (%(default)s)",
    )
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
        ("seed", "chooses initial weights and the order of the samples"),
    ):
        parser.add_argument(
            _flag(option), type=int, default=getattr(defaults, option), metavar="N", help=f"{what} (%(default)s)"
        )
    parser.add_argument(
        "--lr", type=float, default=defaults.learning_rate, metavar="RATE", help="learning rate (%(default)s)"
    )
    parser.add_argument(
        "--report-every", type=int, default=300, metavar="N", help="batches between two validations (%(default)s)"
    )
    add_folder(parser, "where the model and the loss curve are written")


def run(args: argparse.Namespace) -> int:
    """Train, validate and save; the last line is the accuracy of the saved model on the test set.

    The exit code is 1 if there are baselines of these settings and the run leaves the band of one.
    """
    settings = settings_of(args)
    make_folder(args.folder)
    from ipu_conformance.workloads.paddle_mnist import curve
    from ipu_conformance.workloads.paddle_mnist.reference import judgements
    from ipu_conformance.workloads.paddle_mnist.training import train

    result = train(
        settings,
        native=args.native,
        model=model_folder(args.folder),
        every=args.report_every,
        say=lambda line: print(line, flush=True),
    )
    print(f"Best pass is {result.best}, validation cost is {result.passes[result.best - 1].cost:.6f}")
    print(f"Saved the inference model to {model_folder(args.folder)}")
    _draw_curve(curve, result, args)
    verdicts = judgements(settings, result)
    for verdict in verdicts:
        print(verdict.sentence, file=sys.stdout if verdict.passed else sys.stderr, flush=True)
    print(f"Accuracy on test set: {100 * result.accuracy:.2f}%")
    return 0 if all(verdict.passed for verdict in verdicts) else 1


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings that the options ask for."""
    if args.report_every < 1:
        raise WorkloadError(f"--report-every is {args.report_every}; give 1 or more")
    data = choose_data(args.data)
    budget = BUDGETS[data]
    settings = Settings(
        data=data,
        epochs=_given(args.epochs, budget.epochs),
        train_size=_given(args.train_size, budget.train_size),
        test_size=_given(args.test_size, budget.test_size),
        batch_size=args.batch_size,
        learning_rate=args.lr,
        seed=args.seed,
        num_ipus=args.num_ipus,
        replication_factor=args.replication_factor,
        pipelining=not args.no_pipelining,
    )
    if args.native and settings.num_ipus > 1:
        raise WorkloadError(
            f"--num_ipus is {settings.num_ipus}, and without IPUs the network trains on the host alone; "
            "leave --num_ipus and --replication-factor out, or use IPUs"
        )
    return settings


def _draw_curve(curve: Any, result: Any, args: argparse.Namespace) -> None:
    path: Path = args.folder / CURVE
    if not curve.can_draw():
        print(
            "No loss curve is drawn: matplotlib is not installed; pip install 'ipu-conformance[plot]'",
            file=sys.stderr,
        )
        return
    batches, costs, _ = zip(*result.validations)
    title = f"LeNet-5 {'natively' if args.native else 'on the IPU'}, seed {args.seed}"
    curve.draw(result.costs, batches, costs, title, path)
    print(f"Drew the loss curve to {path}")


def _flag(option: str) -> str:
    return "--" + option.replace("_", "-")


def _given(value: Any, default: Any) -> Any:
    return default if value is None else value
