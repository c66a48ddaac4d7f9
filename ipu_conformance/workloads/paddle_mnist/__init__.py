"""Digits with Paddle: LeNet-5 as a static Program, trained with Adam, validated on the test set and saved."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from ipu_conformance.workloads import WorkloadError, options
from ipu_conformance.workloads.options import Budget, Budgets

NAME = "paddle-mnist"
FOLDER = "paddle_mnist"
"""Where all files of the workload are, by default in the current folder."""
PREFIX = "recognise_digits"
MODEL_FILES = (f"{PREFIX}.pdmodel", f"{PREFIX}.pdiparams")

MOST_STAGES = 2
"""The network is cut once, after the batch norm."""
PIPELINED_ACCUMULATION = 4
"""Micro-batches of one update in a pipeline; training in two stages needs at least three."""

BUDGETS: Budgets = {
    "synthetic-digits": Budget(epochs=4, train_size=4000, test_size=2000),
    "mnist": Budget(epochs=4, train_size=60_000, test_size=10_000),
}


@dataclass(frozen=True)
class Settings:
    """One run; the defaults are those of the baseline."""

    num_ipus: int = options.number(1, "IPUs in all", "--num_ipus", "--num-ipus")
    pipelining: bool = options.switched_off(
        "where a replica has two IPUs, let one wait for the other", "--no_pipelining", "--no-pipelining"
    )
    """Where a replica has two IPUs, they work as a pipeline; else one waits for the other."""
    replication_factor: int = options.number(
        1,
        "replicas that share a batch; has to divide the IPUs",
        "--replication-factor",
        "--replication_factor",
    )
    data: str = options.data_set(BUDGETS)
    epochs: int = options.budgeted(BUDGETS, "epochs", "passes over the training set")
    train_size: int = options.budgeted(BUDGETS, "train_size", least=None)
    test_size: int = options.budgeted(BUDGETS, "test_size")
    batch_size: int = options.number(64, "samples of one weight update")
    seed: int = options.number(0, "chooses initial weights and the order of the samples", least=None)
    learning_rate: float = options.learning_rate(1e-3)

    def __post_init__(self) -> None:
        # Paddle takes the seed and one more.
        options.check_numbers(self, seeds_reserved=1)
        options.check_one_update(self)
        self._check_ipus()

    def _check_ipus(self) -> None:
        if self.num_ipus % self.replication_factor:
            raise WorkloadError(
                f"--replication-factor is {self.replication_factor}, which does not divide the {self.num_ipus} IPUs "
                "of --num_ipus; give every replica the same number of IPUs"
            )
        if self.stages > MOST_STAGES:
            raise WorkloadError(
                f"--num_ipus is {self.num_ipus}, which gives each of {self.replication_factor} replicas {self.stages} "
                f"IPUs, and the network is cut for at most {MOST_STAGES}; use fewer IPUs or more replicas"
            )
        if self.batch_size % (self.replication_factor * self.accumulation):
            raise WorkloadError(
                f"--batch-size is {self.batch_size}, which {self.replication_factor} replicas with "
                f"{self.accumulation} micro-batches each cannot share equally; give a multiple of "
                f"{self.replication_factor * self.accumulation}"
            )

    @property
    def stages(self) -> int:
        """The IPUs of one replica."""
        return self.num_ipus // self.replication_factor

    @property
    def pipelined(self) -> bool:
        """Whether the IPUs of a replica work at the same time."""
        return self.pipelining and self.stages > 1

    @property
    def accumulation(self) -> int:
        """The micro-batches whose gradients a replica adds before an update."""
        return PIPELINED_ACCUMULATION if self.pipelined else 1

    @property
    def micro_batch(self) -> int:
        """The samples that a stage takes at once; all micro-batches of all replicas are one batch."""
        return self.batch_size // (self.replication_factor * self.accumulation)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options; a size that is not given follows from the data set."""
    add_use_ipu(parser)
    options.add(parser, Settings)
    parser.add_argument(
        "--report-every", type=int, default=300, metavar="N", help="batches between two validations (%(default)s)"
    )
    add_folder(parser, "where the model and the loss curve are written")


def add_use_ipu(parser: argparse.ArgumentParser) -> None:
    """Add ``--use_ipu BOOL``: ``--use_ipu False`` means the same as ``--native``."""
    parser.add_argument(
        "--use_ipu",
        "--use-ipu",
        dest="native",
        type=_is_false,
        metavar="BOOL",
        help="False runs without any IPU API, as --native does (True)",
    )


def _is_false(word: str) -> bool:
    try:
        return {"true": False, "1": False, "yes": False, "false": True, "0": True, "no": True}[word.lower()]
    except KeyError:
        raise argparse.ArgumentTypeError(f"{word!r} is neither True nor False") from None


def add_folder(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--folder DIR``."""
    parser.add_argument("--folder", type=Path, default=Path(FOLDER), metavar="DIR", help=f"{what} (./%(default)s)")


def model_folder(folder: Path) -> Path:
    """Where the inference model is."""
    return folder / "model"


def run(args: argparse.Namespace) -> int:
    """Train, validate and save; the last line is the accuracy of the saved model on the test set.

    The exit code is 1 if there are baselines of these settings and the run leaves the band of one.
    """
    settings = settings_of(args)
    options.make_folder(args.folder)
    from ipu_conformance.workloads import plots
    from ipu_conformance.workloads.bars import say
    from ipu_conformance.workloads.paddle_mnist.reference import judgements
    from ipu_conformance.workloads.paddle_mnist.training import train
    from ipu_conformance.workloads.reference import show

    result = train(
        settings,
        native=args.native,
        model=model_folder(args.folder),
        every=args.report_every,
        bars=True,
        say=say,
    )
    print(f"Best pass is {result.best}, validation cost is {result.passes[result.best - 1].cost:.6f}")
    print(f"Saved the inference model to {model_folder(args.folder)}")
    validations = [(each.batches, each.cost) for each in result.validations]
    title = f"LeNet-5 {'natively' if args.native else 'on the IPU'}, seed {args.seed}"
    plots.show_loss_curve(result.costs, validations, title, args.folder)
    return show(judgements(settings, result), result.accuracy)


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings that the options ask for."""
    if args.report_every < 1:
        raise WorkloadError(f"--report-every is {args.report_every}; give 1 or more")
    settings: Settings = options.read(Settings, args, BUDGETS)
    if args.native and settings.num_ipus > 1:
        raise WorkloadError(
            f"--num_ipus is {settings.num_ipus}, and without IPUs the network trains on the host alone; "
            "leave --num_ipus and --replication-factor out, or use IPUs"
        )
    return settings
