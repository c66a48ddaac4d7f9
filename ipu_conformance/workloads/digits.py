"""Which digits a workload trains on: real ones where the user put them, else synthetic ones."""

from __future__ import annotations

import os
from typing import NamedTuple


class Budget(NamedTuple):
    """How much of a data set a run uses unless it is told otherwise."""

    epochs: int
    train_size: int
    test_size: int


def choose_data(wanted: str) -> str:
    """The data set: for ``auto`` real MNIST if the folder that IPU_CONFORMANCE_DATA names has it."""
    if wanted != "auto":
        return wanted
    from ipu_conformance.data.places import DATA_VARIABLE, find

    if os.environ.get(DATA_VARIABLE) is None:
        return "synthetic-digits"
    location = find("mnist")
    return "mnist" if location is not None and location.origin == f"${DATA_VARIABLE}" else "synthetic-digits"
