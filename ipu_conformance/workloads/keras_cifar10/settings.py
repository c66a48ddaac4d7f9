"""What a run of the workload depends on, refused at the door where it cannot work."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Mapping

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

APPROACHES: Mapping[str, str] = {"strategy": "ipu_conformance.workloads.keras_cifar10.strategy"}
"""The ways to train the network on IPUs: for each the module whose ``train`` does it."""


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
    dropout: bool = True
    """Without it the device draws no random numbers."""

    def __post_init__(self) -> None:
        if self.approach not in APPROACHES:
            raise WorkloadError(f"--approach is {self.approach!r}; choose from {', '.join(APPROACHES)}")
        for name in ("epochs", "train_size", "test_size", "batch_size", "ipus"):
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
        check_shares("--ipus", self.ipus, self.batch_size, self.test_size)

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
        """The test samples that a replica takes at once."""
        return test_batch(self.ipus, self.test_size)
