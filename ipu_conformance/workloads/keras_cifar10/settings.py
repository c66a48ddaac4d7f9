"""What a run of the workload depends on, refused at the door where it cannot work."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Mapping, NamedTuple, Optional

from ipu_conformance.workloads import WorkloadError
from ipu_conformance.workloads.digits import Budget
from ipu_conformance.workloads.shares import check_shares, test_batch

NAME = "keras-cifar10"
MOST_STEPS = 500
"""The most updates that the device makes on its own."""

BUDGETS: Mapping[str, Budget] = {
    "synthetic-cifar": Budget(epochs=3, train_size=1600, test_size=400),
    "cifar10": Budget(epochs=150, train_size=50_000, test_size=10_000),
}

HERE = "ipu_conformance.workloads.keras_cifar10"
APPROACHES: Mapping[str, str] = {
    "strategy": f"{HERE}.strategy",
    "estimator": f"{HERE}.estimator",
    "replica": f"{HERE}.estimator",
    "pipeline": f"{HERE}.pipeline",
}
"""The ways to train the network on IPUs: for each the module whose ``train`` does it."""

STAGES = 2
"""The stages of the pipeline, each on an IPU of its own."""
LAYERS, LAYERS_OF_BLOCK, DROPOUTS = 12, 4, 3
"""The layers of the network, of its first block, and how many of them drop out: one of those ends the block."""


class Usual(NamedTuple):
    """What an approach takes unless it is told otherwise."""

    ipus: int = 1
    gradient_accumulation_count: int = 1


USUAL: Mapping[str, Usual] = {
    "strategy": Usual(),
    "estimator": Usual(),
    "replica": Usual(ipus=2),
    "pipeline": Usual(ipus=STAGES, gradient_accumulation_count=2 * STAGES),
}


@dataclass(frozen=True)
class Settings:
    """One run; the defaults are those for synthetic pictures."""

    approach: str = "strategy"
    data: str = "synthetic-cifar"
    epochs: int = BUDGETS["synthetic-cifar"].epochs
    train_size: int = BUDGETS["synthetic-cifar"].train_size
    test_size: int = BUDGETS["synthetic-cifar"].test_size
    batch_size: int = 16
    learning_rate: float = 0.01
    seed: int = 0
    ipus: int = 1
    gradient_accumulation_count: int = 1
    """The micro-batches of a replica's share of a batch."""
    model_shard_position: Optional[int] = None
    """The layer with which the second stage of a pipeline begins, counted from 0; None is the second block."""
    dropout: bool = True
    """Without it the device draws no random numbers."""

    def __post_init__(self) -> None:
        if self.approach not in APPROACHES:
            raise WorkloadError(f"--approach is {self.approach!r}; choose from {', '.join(APPROACHES)}")
        for name in ("epochs", "train_size", "test_size", "batch_size", "ipus", "gradient_accumulation_count"):
            if getattr(self, name) < 1:
                raise WorkloadError(f"--{name.replace('_', '-')} is {getattr(self, name)}; give 1 or more")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise WorkloadError(f"--lr is {self.learning_rate}; give a positive number")
        if not 0 <= self.seed < 2**31:
            raise WorkloadError(f"--seed is {self.seed}; give a number from 0 to 2**31 - 1")
        if self.train_size < self.batch_size:
            raise WorkloadError(
                f"--train-size is {self.train_size}, and one update takes {self.batch_size} samples; "
                "give at least as many"
            )
        self._check_ipus()
        self._check_shard_position()
        check_shares("--ipus", self.replicas, self.batch_size, self.test_size)
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
        return test_batch(self.ipus, self.test_size)
