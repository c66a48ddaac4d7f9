"""What a run of the workload depends on, refused at the door where it cannot work."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Mapping

from ipu_conformance.workloads import WorkloadError
from ipu_conformance.workloads.digits import Budget
from ipu_conformance.workloads.shares import check_shares, test_batch

NAME = "keras-mnist"

BUDGETS: Mapping[str, Budget] = {
    "synthetic-digits": Budget(epochs=4, train_size=4000, test_size=2000),
    "mnist": Budget(epochs=4, train_size=60_000, test_size=10_000),
}


@dataclass(frozen=True)
class Settings:
    """One run; the defaults are those of the baseline."""

    data: str = "synthetic-digits"
    epochs: int = BUDGETS["synthetic-digits"].epochs
    steps_per_epoch: int = 2000
    steps_per_execution: int = 100
    train_size: int = BUDGETS["synthetic-digits"].train_size
    test_size: int = BUDGETS["synthetic-digits"].test_size
    batch_size: int = 32
    learning_rate: float = 0.01
    seed: int = 0
    replicas: int = 1

    def __post_init__(self) -> None:
        for name in (
            "epochs", "steps_per_epoch", "steps_per_execution", "train_size", "test_size", "batch_size", "replicas",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise WorkloadError(f"--{name.replace('_', '-')} is {getattr(self, name)}; give 1 or more")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise WorkloadError(f"--lr is {self.learning_rate}; give a positive number")
        if not 0 <= self.seed < 2**31:
            raise WorkloadError(f"--seed is {self.seed}; give a number from 0 to 2**31 - 1")
        if self.steps_per_epoch % self.steps_per_execution:
            raise WorkloadError(
                f"--steps-per-execution is {self.steps_per_execution}, which does not divide the "
                f"{self.steps_per_epoch} of --steps-per-epoch; give a divisor of them"
            )
        check_shares("--replicas", self.replicas, self.batch_size, self.test_size)

    @property
    def test_batch(self) -> int:
        """The test samples that a replica takes at once."""
        return test_batch(self.replicas, self.test_size)
