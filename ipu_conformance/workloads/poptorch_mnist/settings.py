"""What a run of the workload depends on, refused at the door where it cannot work."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Mapping

from ipu_conformance.workloads import WorkloadError
from ipu_conformance.workloads.digits import Budget

NAME = "poptorch-mnist"


BUDGETS: Mapping[str, Budget] = {
    "synthetic-digits": Budget(epochs=3, train_size=4000, test_size=2000),
    "mnist": Budget(epochs=10, train_size=60_000, test_size=10_000),
}


@dataclass(frozen=True)
class Settings:
    """One run; the defaults are those of the baseline."""

    data: str = "synthetic-digits"
    epochs: int = BUDGETS["synthetic-digits"].epochs
    train_size: int = BUDGETS["synthetic-digits"].train_size
    test_size: int = BUDGETS["synthetic-digits"].test_size
    batch_size: int = 8
    test_batch_size: int = 80
    device_iterations: int = 50
    learning_rate: float = 0.03
    dropout: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "test_batch_size", "device_iterations"):
            value = getattr(self, name)
            if value < 1:
                raise WorkloadError(f"--{name.replace('_', '-')} is {value}; give 1 or more")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise WorkloadError(f"--lr is {self.learning_rate}; give a positive number")
        if not 0 <= self.seed < 2**63:
            raise WorkloadError(f"--seed is {self.seed}; give a number from 0 to 2**63 - 1")
        if self.train_size < self.combined_batch:
            raise WorkloadError(
                f"--train-size is {self.train_size}, and one call of the model takes {self.combined_batch} samples "
                f"({self.device_iterations} device iterations of {self.batch_size}); give at least as many"
            )
        if self.test_size < 1 or self.test_size % self.test_batch_size:
            raise WorkloadError(
                f"--test-size is {self.test_size}, which --test-batch-size {self.test_batch_size} does not divide; "
                "give a multiple of it, so that every test sample counts"
            )

    @property
    def combined_batch(self) -> int:
        """The samples of one call of the training model."""
        return self.batch_size * self.device_iterations

    @property
    def test_iterations(self) -> int:
        """The most device iterations, up to those of training, with which no test sample is left over."""
        batches = self.test_size // self.test_batch_size
        return max(n for n in range(1, min(batches, self.device_iterations) + 1) if batches % n == 0)
