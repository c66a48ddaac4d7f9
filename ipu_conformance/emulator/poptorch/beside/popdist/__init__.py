"""The emulated ``popdist``: a program that was started alone is the one instance of its run.

The names, and what each says where PopRun has set nothing, are those of Graphcore's PopDist Python API reference
(poprun-user-guide, ``api_python``); ``init`` and ``isPopdistEnvSet`` are called by Graphcore's TensorFlow
(``PopDistStrategy``) and PopART.
"""

from __future__ import annotations

from typing import Any, Callable, Collection


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


def getLocalInstanceIndex() -> int:
    """Which of the instances on its host this is."""
    return 0


def getNumIpusPerReplica() -> int:
    """How many IPUs a replica has."""
    return 1


def checkNumIpusPerReplica(arg0: int) -> bool:
    """Whether a replica has that many IPUs."""
    return arg0 == getNumIpusPerReplica()


def execute_on_instances(instances: Collection[int], func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a function gives on the instances that are named; elsewhere it is not called."""
    return func(*args, **kwargs) if getInstanceIndex() in instances else None
