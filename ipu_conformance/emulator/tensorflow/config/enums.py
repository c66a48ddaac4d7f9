"""The enumerations of IPUConfig."""

from __future__ import annotations

from enum import Enum


class SelectionOrder(Enum):
    """The order in which the IPUs of a device are numbered along the links of the machine."""

    AUTO = 0
    ZIGZAG = 1
    SNAKE = 2
    HOOF = 3


class DeviceConnectionType(Enum):
    """When the host takes hold of an IPU device."""

    ALWAYS = 0
    ON_DEMAND = 1
    PRE_COMPILE = 2
    NEVER = 3


class ExecutionProfileType(Enum):
    """What an execution profile counts cycles of."""

    NO_PROFILE = 0
    DEVICE_PROFILE = 1
    IPU_PROFILE = 2
    TILE_PROFILE = 3


class MergeRemoteBuffersBehaviour(Enum):
    """Whether remote buffers of one shape become one."""

    NO_MERGING = 0
    MERGE = 1
    IF_BENEFICIAL = 2


class SchedulingAlgorithm(Enum):
    """How the compiler orders what may be ordered freely."""

    CHOOSE_BEST = 0
    CLUSTERING = 1
    POST_ORDER = 2
    LOOK_AHEAD = 3
    SHORTEST_PATH = 4


class StochasticRoundingBehaviour(Enum):
    """Whether values are rounded at random, everywhere or only where replicas stay identical."""

    OFF = 0
    ON = 1
    REPLICA_IDENTICAL_ONLY = 2

    @classmethod
    def from_bool(cls, value: bool) -> StochasticRoundingBehaviour:
        """ON for True, OFF for False."""
        if not isinstance(value, bool):
            raise TypeError(f"{value!r} was given; use True or False.")
        return cls.ON if value else cls.OFF
