"""Small pictures with an IPUEstimator: a convolutional network, trained with SGD in loops on the device, and tested."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any, Dict, Optional

from ipu_conformance.workloads import WorkloadError
from ipu_conformance.workloads.estimator_cnn.settings import BUDGETS, NAME, Settings
from ipu_conformance.workloads.folders import make_folder
from ipu_conformance.workloads.keras_options import add_data, add_numbers, expect_ipu_placement, given, show
from ipu_conformance.workloads.real_data import choose

__all__ = ["NAME", "Settings", "configure", "run"]

REAL, SYNTHETIC = "cifar10", "synthetic-cifar"
RUNS = Path("estimator_cnn")
ENGINE_OPTIONS = "POPLAR_ENGINE_OPTIONS"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options; a size that is not given follows from the data set."""
    defaults = Settings()
    add_numbers(
        parser,
        defaults,
        batch_size="samples of one weight update",
        batches_per_step="updates that the device makes on its own",
        seed="chooses initial weights, dropout and the order of the samples",
    )
    parser.add_argument(
        "--learning-rate",
        "--lr",
        type=float,
        default=defaults.learning_rate,
        metavar="RATE",
        help="learning rate (%(default)s)",
    )
    add_data(parser, BUDGETS, real=REAL, synthetic=SYNTHETIC, epochs="passes over the training set, in whole loops")
    parser.add_argument(
        "--steps",
        type=int,
        metavar="N",
        help="updates to train for, a multiple of --batches-per-step (as --epochs says)",
    )
    parser.add_argument("--test-only", action="store_true", help="test the network that --model-dir holds")
    parser.add_argument(
        "--model-dir",
        type=Path,
        metavar="DIR",
        help=f"where checkpoints are; training goes on from the last one (a new folder in ./{RUNS})",
    )
    parser.add_argument(
        "--profile", type=Path, metavar="DIR", help="where reports of the compiled programs are written (none are)"
    )
    parser.add_argument("--no-dropout", action="store_true", help="leave dropout out: no random numbers while training")


def run(args: argparse.Namespace) -> int:
    """Train and test, or only test; the last line is the accuracy."""
    settings = settings_of(args)
    folder = tested_folder(args.model_dir) if args.test_only else args.model_dir or new_folder()
    engine = engine_options(args.profile, native=args.native)
    from ipu_conformance.data import load

    data = load(settings.data, train=0 if args.test_only else settings.train_size, test=settings.test_size)
    for flag, needed in (("--model-dir", folder), ("--profile", args.profile)):
        if needed is not None:
            make_folder(needed, flag)
    os.environ.update(engine)
    expect_ipu_placement()
    from ipu_conformance.workloads.estimator_cnn import training

    if not args.test_only:
        training.train(settings, data, folder, native=args.native, say=lambda line: print(line, flush=True))
        print(f"Saved checkpoints to {folder}", flush=True)
    result = training.evaluate(settings, data, folder, native=args.native)
    print(f"Step {result.step}, loss on test set {result.loss:.4f}")
    return show((), result.accuracy)


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings that the options ask for."""
    data = choose(args.data, real=REAL, synthetic=SYNTHETIC)
    budget = BUDGETS[data]
    if args.epochs is not None and args.steps is not None:
        raise WorkloadError(
            f"--epochs is {args.epochs} and --steps is {args.steps}; both say how long to train: give one of them"
        )
    return Settings(
        data=data,
        epochs=given(args.epochs, budget.epochs),
        steps=args.steps,
        train_size=given(args.train_size, budget.train_size),
        test_size=given(args.test_size, budget.test_size),
        batch_size=args.batch_size,
        batches_per_step=args.batches_per_step,
        learning_rate=args.learning_rate,
        seed=args.seed,
        dropout=not args.no_dropout,
    )


def tested_folder(folder: Optional[Path]) -> Path:
    """The folder of the network that is tested; one that cannot hold any is refused before TensorFlow is loaded."""
    if folder is None:
        raise WorkloadError("--test-only needs a trained network; name its folder with --model-dir")
    if not (folder / "checkpoint").is_file():
        raise WorkloadError(f"--model-dir {folder} holds no checkpoint; train first, or name the folder of a training")
    return folder


def new_folder() -> Path:
    """The first folder that no run has used yet."""
    return next(folder for folder in (RUNS / f"run-{number}" for number in range(1, 10**6)) if not folder.exists())


def engine_options(profile: Optional[Path], *, native: bool) -> Dict[str, str]:
    """What the environment has to say so that compiled programs leave reports; it keeps the options that it has."""
    if profile is None:
        return {}
    if native:
        raise WorkloadError(f"--profile is {profile}, and without IPUs nothing is compiled; leave it out, or use IPUs")
    now = os.environ.get(ENGINE_OPTIONS, "").strip() or "{}"
    try:
        options: Dict[str, Any] = dict(json.loads(now))
    except (TypeError, ValueError):
        raise WorkloadError(f"{ENGINE_OPTIONS} is {now!r}, which is no JSON object; correct it") from None
    return {ENGINE_OPTIONS: json.dumps({**options, "autoReport.all": "true", "autoReport.directory": str(profile)})}
