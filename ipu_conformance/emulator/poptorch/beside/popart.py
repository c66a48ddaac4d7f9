"""The emulated ``popart``: enumerations and option classes, whose values a program hands to ``Options._Popart.set``.

The numbers are those of PopART's public ``sessionoptions.hpp``. There is no engine behind it: a session raises.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, List, Optional

from ipu_conformance.emulator.poptorch.options.diagnostics import Error
from ipu_conformance.emulator.poptorch.options.enums import ByValue

__version__ = "3.4.0+emulator"


class popart_exception(Error):  # noqa: N801, N818 (the vendor's name)
    """An error of PopART."""


class RecomputationType(ByValue, enum.IntEnum):
    """Which operations are computed again in the backward pass."""

    NoRecompute = 0
    Standard = 1
    NormOnly = 2
    Pipeline = 3
    RecomputeAll = 4


class VirtualGraphMode(ByValue, enum.IntEnum):
    """Who places operations on IPUs."""

    Off = 0
    Manual = 1
    Auto = 2
    ExecutionPhases = 3


class SyntheticDataMode(ByValue, enum.IntEnum):
    """What inputs hold instead of data."""

    Off = 0
    Zeros = 1
    RandomNormal = 2


class Instrumentation(ByValue, enum.IntEnum):
    """Which loops are measured."""

    Outer = 0
    Inner = 1


class GradientTensorTrackingMethod(ByValue, enum.IntEnum):
    """Which gradients automatic loss scaling looks at."""

    AllNonViewChangingGradientTensors = 0
    ConvAndMatmulGradients = 1
    GradientsOfUserSpecifiedTensors = 2


class ExecutionPhaseIOSchedule(ByValue, enum.IntEnum):
    """When the tensors of a phase are loaded."""

    Preload = 0
    OnDemand = 1


class ExecutionPhaseSchedule(ByValue, enum.IntEnum):
    """The order of the steps that update the weights of a phase."""

    Interleaving = 0
    Batch = 1
    BatchClusteredIO = 2


class BatchSerializationBatchSchedule(ByValue, enum.IntEnum):
    """The order of the pieces of a serialized batch."""

    Scheduler = 0
    Isomorphic = 1
    OverlapOnIo = 2
    OverlapOnCompute = 3


class AccumulateOuterFragmentSchedule(ByValue, enum.IntEnum):
    """The order, over the IPUs, of what follows the accumulation of gradients."""

    Scheduler = 0
    Serial = 1
    OverlapCycleOptimized = 2
    OverlapMemoryOptimized = 3


class AnchorReturnTypeId(ByValue, enum.IntEnum):
    """Which micro-batches of an anchored tensor come back."""

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3


class AnchorReturnType:
    """Which micro-batches of an anchored tensor come back, by name; EveryN has a period, and no other has."""

    def __init__(self, anchorReturnTypeString: str, returnPeriod: Optional[int] = None) -> None:
        names = {member.name.lower(): member for member in AnchorReturnTypeId}
        if anchorReturnTypeString.lower() not in names:
            raise popart_exception(
                f"Unknown anchor return type {anchorReturnTypeString!r}: use Final, EveryN, All or Sum"
            )
        self._id = names[anchorReturnTypeString.lower()]
        if self._id != AnchorReturnTypeId.EveryN:
            self._refuse_period(returnPeriod is not None)
        elif returnPeriod is None:
            raise popart_exception("Must specify return period with option 'EVERYN'")
        elif returnPeriod <= 0:
            raise popart_exception(f"Anchor return period must be greater than zero, but it is {returnPeriod}")
        self._period = returnPeriod

    def id(self) -> AnchorReturnTypeId:
        """The kind."""
        return self._id

    def rp(self) -> Optional[int]:
        """The period of EveryN."""
        self._refuse_period(self._id != AnchorReturnTypeId.EveryN)
        return self._period

    def _refuse_period(self, asked: bool) -> None:
        if asked:
            raise popart_exception(
                f"A return period should not be supplied for this anchor return type, {self._id.name}"
            )


@dataclass
class AutomaticLossScalingSettings:
    """How the loss scaling follows the gradients."""

    enabled: bool = False
    toTrackTensors: Optional[List[str]] = None
    binEdgeLocation: float = 0.125
    thresholdUpperCountProportion: float = 1e-7
    updatePeriod: int = 1
    gradientTensorTrackingMethod: GradientTensorTrackingMethod = (
        GradientTensorTrackingMethod.AllNonViewChangingGradientTensors
    )


@dataclass
class ExecutionPhaseSettings:
    """How many phases there are, and when they load and store."""

    phases: int = 0
    stages: int = 2
    weightIOSchedule: ExecutionPhaseIOSchedule = ExecutionPhaseIOSchedule.Preload
    activationIOSchedule: ExecutionPhaseIOSchedule = ExecutionPhaseIOSchedule.Preload
    optimizerStateIOSchedule: ExecutionPhaseIOSchedule = ExecutionPhaseIOSchedule.OnDemand
    accumulatorIOSchedule: ExecutionPhaseIOSchedule = ExecutionPhaseIOSchedule.Preload
    schedule: ExecutionPhaseSchedule = ExecutionPhaseSchedule.Interleaving


class _Session:
    """A session of PopART's own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise popart_exception(
            f"popart.{type(self).__name__} cannot run on the emulator: it has PopTorch's models and no engine of "
            "PopART; use poptorch.trainingModel or poptorch.inferenceModel"
        )


class InferenceSession(_Session):
    """A session that runs the forward pass."""


class TrainingSession(_Session):
    """A session that trains."""
