"""The emulated ``popdist``: a program that was started alone is the one instance of its run."""

from __future__ import annotations


def isPopdistEnvSet() -> bool:
    """Whether the program was started as one of several instances; the emulator starts it alone."""
    return False


def init() -> None:
    """Make the instances known to one another; there is one."""


def getNumInstances() -> int:
    """How many instances there are."""
    return 1


def getInstanceIndex() -> int:
    """Which instance this is."""
    return 0


def getNumTotalReplicas() -> int:
    """How many replicas all instances have together."""
    return 1


def getNumLocalReplicas() -> int:
    """How many replicas this instance has."""
    return 1
