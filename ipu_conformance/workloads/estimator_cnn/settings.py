"""What a run of the workload depends on, refused at the door where it cannot work."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Mapping, Optional

from ipu_conformance.workloads import WorkloadError
from ipu_conformance.workloads.digits import Budget
from ipu_conformance.workloads.shares import test_batch

NAME = "estimator-cnn"

BUDGETS: Mapping[str, Budget] = {
    "synthetic-cifar": Budget(epochs=1, train_size=8000, test_size=400),
    "cifar10": Budget(epochs=10, train_size=50_000, test_size=10_000),
}


@dataclass(frozen=True)
class Settings:
    """One run; the defaults are those for synthetic pictures."""

    data: str = "synthetic-cifar"
    epochs: int = BUDGETS["synthetic-cifar"].epochs
    steps: Optional[int] = None
    """Updates to train for; None is as many as the epochs need, and loops are whole."""
    train_size: int = BUDGETS["synthetic-cifar"].train_size
    test_size: int = BUDGETS["synthetic-cifar"].test_size
    batch_size: int = 16
    batches_per_step: int = 500
    """The updates that the device makes on its own."""
    learning_rate: float = 0.01
    seed: int = 0
    dropout: bool = True
    """Without it the device draws no random numbers."""

    def __post_init__(self) -> None:
        for name in ("epochs", "steps", "train_size", "test_size", "batch_size", "batches_per_step"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise WorkloadError(f"--{name.replace('_', '-')} is {getattr(self, name)}; give 1 or more")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise WorkloadError(f"--learning-rate is {self.learning_rate}; give a positive number")
        if not 0 <= self.seed < 2**31:
            raise WorkloadError(f"--seed is {self.seed}; give a number from 0 to 2**31 - 1")
        if self.train_size < self.batch_size:
            raise WorkloadError(
                f"--train-size is {self.train_size}, and one update takes {self.batch_size} samples; "
                "give at least as many"
            )
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
        return test_batch(1, self.test_size)
