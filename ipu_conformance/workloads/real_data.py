"""Which data a workload trains on: real ones where the user put them, else synthetic ones."""

from __future__ import annotations

import os


def choose(wanted: str, *, real: str, synthetic: str) -> str:
    """The data set: for ``auto`` the real one if the folder that IPU_CONFORMANCE_DATA names has it."""
    if wanted != "auto":
        return wanted
    from ipu_conformance.data.places import DATA_VARIABLE, find

    if os.environ.get(DATA_VARIABLE) is None:
        return synthetic
    location = find(real)
    return real if location is not None and location.origin == f"${DATA_VARIABLE}" else synthetic
