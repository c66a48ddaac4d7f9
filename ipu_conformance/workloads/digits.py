"""Which digits a workload trains on: real ones where the user put them, else synthetic ones."""

from __future__ import annotations

from typing import NamedTuple

from ipu_conformance.workloads.real_data import choose


class Budget(NamedTuple):
    """How much of a data set a run uses unless it is told otherwise."""

    epochs: int
    train_size: int
    test_size: int


def choose_data(wanted: str) -> str:
    """The data set: for ``auto`` real MNIST if the folder that IPU_CONFORMANCE_DATA names has it."""
    return choose(wanted, real="mnist", synthetic="synthetic-digits")
