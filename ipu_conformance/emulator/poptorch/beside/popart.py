"""The emulated ``popart``: enumerations and option classes, whose values a program hands to ``Options._Popart.set``.

The numbers and defaults are those of PopART's public ``sessionoptions.hpp``. There is no engine behind: a session
raises.
"""

from __future__ import annotations

import enum
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Dict, List, Optional, Set

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


class MergeVarUpdateType(ByValue, enum.IntEnum):
    """Which updates of weights are done together."""

    Off = 0
    All = 1
    AutoLoose = 2
    AutoTight = 3


class SubgraphCopyingStrategy(ByValue, enum.IntEnum):
    """When the inputs and outputs of an outlined part are copied."""

    OnEnterAndExit = 0
    JustInTime = 1


class ReductionType(ByValue, enum.IntEnum):
    """How losses, or gradients of micro-batches and replicas, become one."""

    Sum = 0
    Mean = 1
    NoReduction = 2


class MeanReductionStrategy(ByValue, enum.IntEnum):
    """When a mean of gradients is divided."""

    Running = 0
    Post = 1


class AutodiffStitchStrategy(ByValue, enum.IntEnum):
    """Where a backward graph takes from what the forward graph does not return."""

    RecomputeMinimal = 0
    RecomputeAllNonInputs = 1
    AddFwdOutputs = 2
    SafeAddFwdOutputs = 3


class BatchSerializationTransformContext(ByValue, enum.IntEnum):
    """Before or after the backward pass is made."""

    Forward = 0
    Backward = 1
    Fwd = 0
    Bwd = 1


class BatchSerializationMethod(ByValue, enum.IntEnum):
    """How a serialized batch is gone through."""

    UnrollDynamic = 0
    UnrollStatic = 1
    Loop = 2


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


@dataclass
class AccumulateOuterFragmentSettings:
    """In which order the IPUs do what follows the accumulation of gradients."""

    schedule: AccumulateOuterFragmentSchedule = AccumulateOuterFragmentSchedule.Serial
    excludedVirtualGraphs: List[int] = field(default_factory=list)


@dataclass
class AutodiffSettings:
    """How backward graphs are made."""

    stitchStrategy: AutodiffStitchStrategy = AutodiffStitchStrategy.RecomputeAllNonInputs


@dataclass
class BatchSerializationSettings:
    """Into how many pieces a batch is cut, and where they are joined."""

    factor: int = 0
    concatOnVirtualGraphChange: bool = True
    concatOnExecutionPhaseChange: bool = True
    concatOnPipelineStageChange: bool = True
    transformContext: BatchSerializationTransformContext = BatchSerializationTransformContext.Fwd
    method: BatchSerializationMethod = BatchSerializationMethod.UnrollDynamic
    batchSchedule: BatchSerializationBatchSchedule = BatchSerializationBatchSchedule.Isomorphic


@dataclass(init=False)
class SessionOptions:
    """What a session of PopART is told: it holds what is set, and no session of the emulator reads it."""

    accumulateOuterFragmentSettings: AccumulateOuterFragmentSettings = field(
        default_factory=AccumulateOuterFragmentSettings
    )
    accumulationAndReplicationReductionType: ReductionType = ReductionType.Sum
    accumulationFactor: int = 1
    aliasZeroCopy: bool = False
    autoRecomputation: RecomputationType = RecomputationType.NoRecompute
    automaticLossScalingSettings: AutomaticLossScalingSettings = field(default_factory=AutomaticLossScalingSettings)
    batchSerializationSettings: BatchSerializationSettings = field(default_factory=BatchSerializationSettings)
    cachePath: str = "session_cache"
    compileEngine: bool = True
    constantWeights: bool = True
    convolutionOptions: Dict[str, str] = field(default_factory=dict)
    customCodeletCompileFlags: str = ""
    customCodelets: List[str] = field(default_factory=list)
    decomposeGradSum: bool = False
    delayVarUpdates: bool = True
    disableGradAccumulationTensorStreams: bool = False
    dotChecks: Set[str] = field(default_factory=set)
    dotOpNames: bool = False
    enableDistributedReplicatedGraphs: bool = False
    enableEngineCaching: bool = False
    enableExplicitMainLoops: bool = False
    enableFloatingPointChecks: bool = False
    enableFullyConnectedPass: bool = True
    enableGradientAccumulation: bool = False
    enableLoadAndOffloadRNGState: bool = False
    enableNonStableSoftmax: bool = False
    enableOutlining: bool = True
    enableOutliningCopyCostPruning: bool = True
    enablePipelining: bool = False
    enablePrefetchDatastreams: bool = True
    enableReplicatedGraphs: bool = False
    enableStableNorm: bool = False
    enableStochasticRounding: bool = False
    enableSupportedDataTypeCasting: bool = True
    engineOptions: Dict[str, str] = field(default_factory=dict)
    executionPhaseSettings: ExecutionPhaseSettings = field(default_factory=ExecutionPhaseSettings)
    explicitRecomputation: bool = False
    exportPoplarComputationGraph: bool = False
    exportPoplarVertexGraph: bool = False
    finalDotOp: int = 10000
    firstDotOp: int = 0
    gclOptions: Dict[str, str] = field(default_factory=dict)
    globalReplicaOffset: int = 0
    globalReplicationFactor: int = 1
    groupHostSync: bool = False
    groupNormStridedChannelGrouping: bool = False
    hardwareInstrumentations: Set[Instrumentation] = field(default_factory=lambda: {Instrumentation.Outer})
    instrumentWithHardwareCycleCounter: bool = False
    kahnTieBreaker: str = "greedy"
    logDir: str = ""
    lstmOptions: Dict[str, str] = field(default_factory=dict)
    matmulOptions: Dict[str, str] = field(default_factory=dict)
    meanAccumulationAndReplicationReductionStrategy: MeanReductionStrategy = MeanReductionStrategy.Post
    mergeVarUpdate: MergeVarUpdateType = MergeVarUpdateType.Off
    mergeVarUpdateMemThreshold: int = 1000000
    numIOTiles: int = 0
    opxAliasChecking: bool = False
    opxModifyChecking: bool = False
    outlineSequenceBreakCost: float = 10000.0
    outlineThreshold: float = 1.0
    partialsTypeMatMuls: str = ""
    rearrangeAnchorsOnHost: bool = True
    replicatedGraphCount: int = 1
    reportOptions: Dict[str, str] = field(default_factory=dict)
    scheduleNonWeightUpdateGradientConsumersEarly: bool = False
    separateCallOpPdfs: bool = True
    serializedPoprithmsShiftGraphsDir: str = ""
    strictOpVersions: bool = True
    subgraphCopyingStrategy: SubgraphCopyingStrategy = SubgraphCopyingStrategy.OnEnterAndExit
    swapLimitScheduler: int = 10**9
    syntheticDataMode: SyntheticDataMode = SyntheticDataMode.Off
    timeLimitScheduler: float = 1e9
    transitiveClosureOptimizationThreshold: int = 100000
    useHostCopyOps: bool = False
    virtualGraphMode: VirtualGraphMode = VirtualGraphMode.Off

    def __init__(self) -> None:
        for option in fields(self):
            made = option.default if option.default_factory is MISSING else option.default_factory()
            setattr(self, option.name, made)


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
