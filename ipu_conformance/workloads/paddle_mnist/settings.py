"""What a run of the workload depends on, refused at the door where it cannot work."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Mapping

from ipu_conformance.workloads import WorkloadError
from ipu_conformance.workloads.digits import Budget

NAME = "paddle-mnist"
MOST_STAGES = 2
"""The network is cut once, after the batch norm."""
PIPELINED_ACCUMULATION = 4
"""Micro-batches of one update in a pipeline; training in two stages needs at least three."""

BUDGETS: Mapping[str, Budget] = {
    "synthetic-digits": Budget(epochs=4, train_size=4000, test_size=2000),
    "mnist": Budget(epochs=4, train_size=60_000, test_size=10_000),
}


@dataclass(frozen=True)
class Settings:
    """One run; the defaults are those of the baseline."""

    data: str = "synthetic-digits"
    epochs: int = BUDGETS["synthetic-digits"].epochs
    train_size: int = BUDGETS["synthetic-digits"].train_size
    test_size: int = BUDGETS["synthetic-digits"].test_size
    batch_size: int = 64
    learning_rate: float = 1e-3
    seed: int = 0
    num_ipus: int = 1
    replication_factor: int = 1
    pipelining: bool = True
    """Where a replica has two IPUs, they work as a pipeline; else one waits for the other."""

    def __post_init__(self) -> None:
        for name, flag in (
            ("epochs", "--epochs"),
            ("batch_size", "--batch-size"),
            ("test_size", "--test-size"),
            ("num_ipus", "--num_ipus"),
            ("replication_factor", "--replication-factor"),
        ):
            if getattr(self, name) < 1:
                raise WorkloadError(f"{flag} is {getattr(self, name)}; give 1 or more")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise WorkloadError(f"--lr is {self.learning_rate}; give a positive number")
        if not 0 <= self.seed < 2**31 - 1:
            raise WorkloadError(f"--seed is {self.seed}; give a number from 0 to 2**31 - 2")
        if self.train_size < self.batch_size:
            raise WorkloadError(
                f"--train-size is {self.train_size}, and one update takes {self.batch_size} samples; "
                "give at least as many"
            )
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
