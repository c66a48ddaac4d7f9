"""The enumerations of the vendor's API.

Those that a program may read back from the options are integers, so that a value and its member are equal.
"""

from __future__ import annotations

import enum
from typing import Any, Tuple


class ByValue:
    """Members are written into files by value; some Pythons write a call of ``getattr``, which no reader takes."""

    _value_: Any

    def __reduce_ex__(self, protocol: Any) -> Tuple[Any, ...]:
        """The class and the value."""
        return type(self), (self._value_,)


class OutputMode(ByValue, enum.IntEnum):
    """Which of a run's micro-batches come back to the host."""

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3
    Default = 4
    """Final for a training model, All for an inference model."""


AnchorMode = OutputMode
"""The name of older SDKs."""


class DataLoaderMode(ByValue, enum.IntEnum):
    """Where batches are made, and whether small ones are gathered in the worker."""

    Sync = 0
    Async = 1
    AsyncRebatched = 2


class SharingStrategy(ByValue, enum.IntEnum):
    """How a dataset reaches the process that loads it."""

    SharedMemory = 0
    FileSystem = 1
    Fork = 2
    ForkServer = 3


class ConnectionType(ByValue, enum.IntEnum):
    """When a model attaches to its device: at once, when it is compiled or run, or never."""

    Always = 0
    OnDemand = 1
    Never = 2


class SyncPattern(ByValue, enum.IntEnum):
    """Which IPUs wait for one another."""

    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2


class ReductionType(ByValue, enum.IntEnum):
    """How gradients of micro-batches and replicas become one."""

    Sum = 0
    Mean = 1
    NoReduction = 2


class MeanReductionStrategy(ByValue, enum.IntEnum):
    """Whether a mean is kept while accumulating or made from the sum at the end."""

    Running = 0
    Post = 1
    PostAndLoss = 2


class HalfFloatCastingBehavior(ByValue, enum.IntEnum):
    """The type of an operation whose inputs are both float16 and float32; no longer has an effect."""

    FloatDowncastToHalf = 0
    HalfUpcastToFloat = 1
    Default = 2


class OverlapMode(ByValue, enum.Enum):
    """How far the transfer of an input or output overlaps with computation."""

    NoOverlap = "no_overlap"
    OverlapAccumulationLoop = "overlap_accumulation_loop"
    OverlapDeviceIterationLoop = "overlap_device_iteration_loop"


class MatMulSerializationMode(ByValue, enum.Enum):
    """The dimension along which a matrix product is made piece by piece."""

    InputChannels = "input_channels"
    ReducingDim = "reducing_dim"
    OutputChannels = "output_channels"
    Disabled = "none"


class Liveness(ByValue, enum.IntEnum):
    """When the tensors of a phase leave the device for the memory of the host."""

    AlwaysLive = 0
    OffChipAfterFwd = 1
    OffChipAfterFwdNoOverlap = 2
    OffChipAfterEachPhase = 3


class AutoStage(ByValue, enum.IntEnum):
    """How a block without a stage gets one."""

    SameAsIpu = 0
    AutoIncrement = 1


class CommGroupType(ByValue, enum.IntEnum):
    """Which replicas form a group."""

    All = 0
    Consecutive = 1
    Orthogonal = 2
    NoGrouping = 3


class VariableRetrievalMode(ByValue, enum.IntEnum):
    """Whether a weight is read from one replica of each group or from all."""

    OnePerGroup = 0
    AllReplicas = 1


class MultiConvPlanType(ByValue, enum.IntEnum):
    """Whether the convolutions of a group run side by side or one after the other."""

    Parallel = 0
    Serial = 1


__all__ = [
    "AnchorMode",
    "AutoStage",
    "CommGroupType",
    "ConnectionType",
    "DataLoaderMode",
    "HalfFloatCastingBehavior",
    "Liveness",
    "MatMulSerializationMode",
    "MeanReductionStrategy",
    "MultiConvPlanType",
    "OutputMode",
    "OverlapMode",
    "ReductionType",
    "SharingStrategy",
    "SyncPattern",
    "VariableRetrievalMode",
]
