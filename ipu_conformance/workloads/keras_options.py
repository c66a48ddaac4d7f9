"""The options that the Keras workloads share, and what their runs show."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any, Mapping, Sequence

from ipu_conformance.oracle.convergence.band import Verdict
from ipu_conformance.workloads import sample_plot
from ipu_conformance.workloads.digits import Budget


def add_data(
    parser: argparse.ArgumentParser, budgets: Mapping[str, Budget], *, real: str, synthetic: str, epochs: str
) -> None:
    """Add ``--data`` and the sizes that follow from it; ``epochs`` says what an epoch is."""
    parser.add_argument(
        "--data",
        choices=("auto", *budgets),
        default="auto",
        help=f"auto takes {real} where IPU_CONFORMANCE_DATA holds it, else {synthetic} (%(default)s)",
    )
    for option, what in (("epochs", epochs), ("train_size", "samples to train on"),
                         ("test_size", "samples to test on")):  # fmt: skip
        sizes = ", ".join(f"{getattr(budget, option):,} for {name}" for name, budget in budgets.items())
        parser.add_argument(_flag(option), type=int, metavar="N", help=f"{what} ({sizes})")


def add_numbers(parser: argparse.ArgumentParser, defaults: Any, **options: str) -> None:
    """Add whole numbers by the names of the settings, each with what it is."""
    for option, what in options.items():
        parser.add_argument(
            _flag(option), type=int, default=getattr(defaults, option), metavar="N", help=f"{what} (%(default)s)"
        )


def add_folder(parser: argparse.ArgumentParser, folder: str) -> None:
    """Add ``--folder DIR``."""
    parser.add_argument(
        "--folder",
        "--output",
        type=Path,
        default=Path(folder),
        metavar="DIR",
        help="where the picture of some samples is written (./%(default)s)",
    )


def expect_ipu_placement() -> None:
    """Let TensorFlow not warn of each variable of a graph that it is told to place on an IPU; before it is imported."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def given(value: Any, default: Any) -> Any:
    """The value of an option, or the default where it was left out."""
    return default if value is None else value


def draw_samples(data: str, folder: Path) -> None:
    """Draw the first training samples to the folder, or say why not."""
    from ipu_conformance.data import CLASS_NAMES, load

    if not sample_plot.can_draw():
        print("No samples are drawn: matplotlib is not installed; pip install 'ipu-conformance[plot]'", file=sys.stderr)
        return
    path = folder / sample_plot.NAME
    count = sample_plot.ROWS * sample_plot.COLUMNS
    sample_plot.draw(load(data, train=count, test=0).train, CLASS_NAMES[data], data, path)
    print(f"Drew some samples to {path}", flush=True)


def show(verdicts: Sequence[Verdict], accuracy: float) -> int:
    """Print what baselines say of a run, then the accuracy; the exit code is 1 if the run leaves a band."""
    for verdict in verdicts:
        print(verdict.sentence, file=sys.stdout if verdict.passed else sys.stderr, flush=True)
    print(f"Accuracy on test set: {100 * accuracy:.2f}%")
    return 0 if all(verdict.passed for verdict in verdicts) else 1


def _flag(option: str) -> str:
    return "--" + option.replace("_", "-")
