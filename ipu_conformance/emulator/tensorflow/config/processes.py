"""How many processes the launcher of a program has started: more than one cannot meet here."""

from __future__ import annotations

import os

from ipu_conformance.emulator.tensorflow.unavailable import UnavailableError

COUNTS = ("POPDIST_NUM_INSTANCES", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
"""The variables of the environment in which launchers say how many processes there are."""


def check_alone(what: str) -> None:
    """Refuse to go on in one of several processes, which would train without the others."""
    for name in COUNTS:
        given = os.environ.get(name, "1")
        if given.strip() != "1":
            raise UnavailableError(
                f"{what} is one of {given} processes by {name}, which the emulator cannot let meet: run one process, "
                "whose device has the IPUs of all replicas."
            )
