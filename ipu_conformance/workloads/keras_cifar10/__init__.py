"""Small pictures with Keras: a convolutional network, trained with SGD, evaluated on the test set."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, NamedTuple, Optional

from ipu_conformance.workloads import WorkloadError, options
from ipu_conformance.workloads.options import Budget, Budgets

NAME = "keras-cifar10"
MOST_STEPS = 500
"""The most updates that the device makes on its own."""

BUDGETS: Budgets = {
    "synthetic-cifar": Budget(epochs=3, train_size=1600, test_size=400),
    "cifar10": Budget(epochs=150, train_size=50_000, test_size=10_000),
}

STAGES = 2
"""The stages of the pipeline, each on an IPU of its own."""
LAYERS, LAYERS_OF_BLOCK, DROPOUTS = 12, 4, 3
"""The layers of the network, of its first block, and how many of them drop out: one of those ends the block."""


class Approach(NamedTuple):
    """The defaults of one way to train the network on IPUs."""

    ipus: int = 1
    gradient_accumulation_count: int = 1


APPROACHES: Mapping[str, Approach] = {
    "strategy": Approach(),
    "estimator": Approach(),
    "replica": Approach(ipus=2),
    "pipeline": Approach(ipus=STAGES, gradient_accumulation_count=2 * STAGES),
}


def _of_approach(name: str, help: str) -> str:
    defaults = ", ".join(f"{getattr(each, name)} for {approach}" for approach, each in APPROACHES.items())
    return f"{help} ({defaults})"


@dataclass(frozen=True)
class Settings:
    """One run; the defaults are those for synthetic pictures."""

    approach: str = options.option(
        "strategy",
        f"how the network is trained on IPUs: {', '.join(APPROACHES)} (%(default)s)",
        metavar="NAME",
        default="strategy",
    )
    data: str = options.data_set(BUDGETS)
    epochs: int = options.budgeted(BUDGETS, "epochs", "passes over the training set")
    train_size: int = options.budgeted(BUDGETS, "train_size")
    test_size: int = options.budgeted(BUDGETS, "test_size")
    batch_size: int = options.number(16, "samples of one weight update, whatever the approach")
    seed: int = options.number(0, "chooses initial weights, dropout and the order of the samples", least=None)
    ipus: int = options.implied(
        1, _of_approach("ipus", "IPUs: replicas, which share a batch equally, or pipelines of two")
    )
    gradient_accumulation_count: int = options.implied(
        1,
        _of_approach("gradient_accumulation_count", "micro-batches into which a replica's share of a batch is divided"),
    )
    model_shard_position: Optional[int] = options.implied(
        None, f"layers of a pipeline's first stage, from 1 to {LAYERS - 1} (the first block)", least=None
    )
    """The layer with which the second stage of a pipeline begins, counted from 0; None is the second block."""
    dropout: bool = options.switched_off("leave dropout out: no random numbers while training", "--no-dropout")
    """Without it the device draws no random numbers."""
    learning_rate: float = options.learning_rate(0.01)

    def __post_init__(self) -> None:
        if self.approach not in APPROACHES:
            raise WorkloadError(f"--approach is {self.approach!r}; choose from {', '.join(APPROACHES)}")
        options.check_numbers(self)
        options.check_one_update(self)
        self._check_ipus()
        self._check_shard_position()
        options.check_equal_parts("--ipus", self.replicas, self.batch_size, self.test_size)
        micro_batches = self.replicas * self.gradient_accumulation_count
        if self.batch_size % micro_batches:
            raise WorkloadError(
                f"--batch-size is {self.batch_size}, which {self.gradient_accumulation_count} micro-batches "
                f"(--gradient-accumulation-count) of {self.replicas} replicas cannot share equally; give a multiple of "
                f"{micro_batches}"
            )

    def _check_ipus(self) -> None:
        if self.approach == "estimator" and self.ipus > 1:
            raise WorkloadError(
                f"--ipus is {self.ipus}, and the approach estimator has one IPU; leave --ipus out, or use "
                "--approach replica"
            )
        if self.approach != "pipeline":
            return
        for flag, count, multiple, why in (
            ("--ipus", self.ipus, STAGES, f"a pipeline has {STAGES} of them"),
            ("--gradient-accumulation-count", self.gradient_accumulation_count, 2 * STAGES,
             f"a pipeline of {STAGES} stages takes two for each"),
            ("--test-size", self.test_size, self.ipus, f"{self.ipus} IPUs work on as many samples at once"),
        ):  # fmt: skip
            if count % multiple:
                raise WorkloadError(f"{flag} is {count}, and {why}; give a multiple of {multiple}")

    def _check_shard_position(self) -> None:
        if self.model_shard_position is None:
            return
        if self.approach != "pipeline":
            raise WorkloadError(
                f"--model-shard-position is {self.model_shard_position}, and the approach {self.approach} does not cut "
                "the network; leave it out, or use --approach pipeline"
            )
        if not 0 < self.model_shard_position < self.layers:
            raise WorkloadError(
                f"--model-shard-position is {self.model_shard_position}, and both parts of the network's {self.layers} "
                f"layers need one; give a number from 1 to {self.layers - 1}"
            )

    @property
    def layers(self) -> int:
        """The layers of the network."""
        return LAYERS if self.dropout else LAYERS - DROPOUTS

    @property
    def cut(self) -> int:
        """The layers of a pipeline's first stage."""
        if self.model_shard_position is not None:
            return self.model_shard_position
        return LAYERS_OF_BLOCK if self.dropout else LAYERS_OF_BLOCK - 1

    @property
    def replicas(self) -> int:
        """The models that share a batch."""
        return self.ipus // STAGES if self.approach == "pipeline" else self.ipus

    @property
    def micro_batch(self) -> int:
        """The samples that a replica takes at once."""
        return self.batch_size // self.replicas // self.gradient_accumulation_count

    @property
    def steps(self) -> int:
        """The updates of an epoch."""
        return self.train_size // self.batch_size

    @property
    def steps_per_execution(self) -> int:
        """The most updates that the device may make on its own and that divide an epoch."""
        return max(n for n in range(1, min(self.steps, MOST_STEPS) + 1) if self.steps % n == 0)

    @property
    def test_batch(self) -> int:
        """The test samples that a replica takes at once: stages of a pipeline need as many batches as there are."""
        return options.largest_test_batch(self.ipus, self.test_size)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options; a size that is not given follows from the data set."""
    options.add(parser, Settings)
    options.add_picture_folder(parser, Path("keras_cifar10"))


def run(args: argparse.Namespace) -> int:
    """Draw some samples, train and classify the test set; the last line is the accuracy."""
    settings = settings_of(args)
    options.make_folder(args.folder)
    from ipu_conformance.workloads import plots
    from ipu_conformance.workloads.bars import say
    from ipu_conformance.workloads.keras import expect_ipu_placement
    from ipu_conformance.workloads.reference import show

    plots.show_samples(settings.data, args.folder)
    expect_ipu_placement()
    from ipu_conformance.workloads.keras_cifar10.reference import judgements
    from ipu_conformance.workloads.keras_cifar10.training import train

    result = train(settings, native=args.native, progress=True, say=say)
    return show(judgements(settings, result), result.accuracy)


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings that the options ask for."""
    defaults = APPROACHES.get(args.approach, Approach())
    if args.native:
        _refuse_on_host(args)
    settings: Settings = options.read(Settings, args, BUDGETS, **defaults._asdict())
    return settings


def _refuse_on_host(args: argparse.Namespace) -> None:
    """The native twin is one model that takes a batch at once."""
    for name in Approach._fields:
        value = getattr(args, name)
        if value is not None and value > 1:
            flag = "--" + name.replace("_", "-")
            raise WorkloadError(
                f"{flag} is {value}, and without IPUs there is one model on the host; leave {flag} out, or use IPUs"
            )
