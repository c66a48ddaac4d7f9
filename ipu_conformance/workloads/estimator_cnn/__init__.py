"""Small pictures with an IPUEstimator: a convolutional network, trained with SGD in loops on the device, and tested."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from ipu_conformance.workloads import WorkloadError, options
from ipu_conformance.workloads.options import Budget, Budgets

if TYPE_CHECKING:
    from ipu_conformance.oracle.convergence.band import Verdict

NAME = "estimator-cnn"
RUNS = Path("estimator_cnn")
ENGINE_OPTIONS = "POPLAR_ENGINE_OPTIONS"

BUDGETS: Budgets = {
    "synthetic-cifar": Budget(epochs=1, train_size=8000, test_size=400),
    "cifar10": Budget(epochs=10, train_size=50_000, test_size=10_000),
}


@dataclass(frozen=True)
class Settings:
    """One run; the defaults are those for synthetic pictures."""

    batch_size: int = options.number(16, "samples of one weight update")
    batches_per_step: int = options.number(500, "updates that the device makes on its own")
    seed: int = options.number(0, "chooses initial weights, dropout and the order of the samples", least=None)
    learning_rate: float = options.learning_rate(0.01, "--learning-rate", "--lr")
    data: str = options.data_set(BUDGETS)
    epochs: int = options.budgeted(BUDGETS, "epochs", "passes over the training set, in whole loops")
    train_size: int = options.budgeted(BUDGETS, "train_size")
    test_size: int = options.budgeted(BUDGETS, "test_size")
    steps: Optional[int] = options.implied(
        None, "updates to train for, a multiple of --batches-per-step (as --epochs says)"
    )
    """None is as many as the epochs need, and loops are whole."""
    dropout: bool = options.switched_off("leave dropout out: no random numbers while training", "--no-dropout")
    """Without it the device draws no random numbers."""

    def __post_init__(self) -> None:
        options.check_numbers(self)
        options.check_one_update(self)
        if self.steps is not None and self.steps % self.batches_per_step:
            raise WorkloadError(
                f"--steps is {self.steps}, and the device makes {self.batches_per_step} at a time "
                f"(--batches-per-step); give a multiple of {self.batches_per_step}"
            )

    @property
    def loops(self) -> int:
        """How often the device makes ``batches_per_step`` updates."""
        wanted = self.epochs * (self.train_size // self.batch_size) if self.steps is None else self.steps
        return -(-wanted // self.batches_per_step)

    @property
    def test_batch(self) -> int:
        """The test samples that are taken at once."""
        return options.largest_test_batch(1, self.test_size)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options; a size that is not given follows from the data set."""
    options.add(parser, Settings)
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


def run(args: argparse.Namespace) -> int:
    """Train and test, or only test; the last line is the accuracy."""
    settings = settings_of(args)
    folder = tested_folder(args.model_dir) if args.test_only else args.model_dir or new_folder()
    engine = engine_options(args.profile, native=args.native)
    from ipu_conformance.data import load

    data = load(settings.data, train=0 if args.test_only else settings.train_size, test=settings.test_size)
    for flag, needed in (("--model-dir", folder), ("--profile", args.profile)):
        if needed is not None:
            options.make_folder(needed, flag)
    os.environ.update(engine)
    from ipu_conformance.workloads.bars import say
    from ipu_conformance.workloads.keras import expect_ipu_placement
    from ipu_conformance.workloads.reference import show

    expect_ipu_placement()
    from ipu_conformance.workloads.estimator_cnn import reference, training

    verdicts: List[Verdict] = []
    if not args.test_only:
        losses = training.train(settings, data, folder, native=args.native, bars=True, say=say)
        print(f"Saved checkpoints to {folder}", flush=True)
    result = training.evaluate(settings, data, folder, native=args.native)
    print(f"Step {result.step}, loss on test set {result.loss:.4f}")
    if not args.test_only and result.step == settings.loops * settings.batches_per_step:
        # A baseline is of networks that were new.
        verdicts = reference.judgements(settings, losses)
    return show(verdicts, result.accuracy)


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings that the options ask for."""
    if args.epochs is not None and args.steps is not None:
        raise WorkloadError(
            f"--epochs is {args.epochs} and --steps is {args.steps}; both say how long to train: give one of them"
        )
    settings: Settings = options.read(Settings, args, BUDGETS)
    return settings


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
        engine: Dict[str, Any] = dict(json.loads(now))
    except (TypeError, ValueError):
        raise WorkloadError(f"{ENGINE_OPTIONS} is {now!r}, which is not a JSON object; correct it") from None
    return {ENGINE_OPTIONS: json.dumps({**engine, "autoReport.all": "true", "autoReport.directory": str(profile)})}
