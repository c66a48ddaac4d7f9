"""The sections of the options: Training, Precision, TensorLocations, Distributed, _Popart and Jit."""

from __future__ import annotations

import os
from typing import Any, ClassVar, Dict, Mapping

import torch

from ipu_conformance.emulator.poptorch.options import enums
from ipu_conformance.emulator.poptorch.options.diagnostics import deprecated
from ipu_conformance.emulator.poptorch.options.values import AT_LEAST_ONE, NOT_NEGATIVE, OptionValues, Rule, Value
from ipu_conformance.emulator.poptorch.refusals import options as refusals


class _TrainingOptions(OptionValues):
    """What only a training model uses; for an inference model the accumulation must be 1."""

    TABLE: ClassVar[Mapping[str, Value]] = {
        "gradient_accumulation": Value(1, (int,), AT_LEAST_ONE),
        "accumulation_and_replication_reduction_type": Value(enums.ReductionType.Mean, (enums.ReductionType,)),
        "meanAccumulationAndReplicationReductionStrategy": Value(
            enums.MeanReductionStrategy.Post, (enums.MeanReductionStrategy,)
        ),
        "auto_loss_scaling": Value(False, (bool,)),
        "convolution_dithering": Value(False, (bool,)),
    }

    def __init__(self) -> None:
        super().__init__()
        self._reduction_strategy_set = False

    def gradientAccumulation(self, gradient_accumulation: int) -> _TrainingOptions:
        """The number of micro-batches whose gradients make one update."""
        return self.set(gradient_accumulation=gradient_accumulation)

    def accumulationAndReplicationReductionType(self, reduction_type: enums.ReductionType) -> _TrainingOptions:
        """Whether gradients of micro-batches and replicas are averaged or summed."""
        self._check_not_frozen("accumulation_and_replication_reduction_type")
        refusals.NO_REDUCTION(reduction=reduction_type, allowed=(enums.ReductionType.Sum, enums.ReductionType.Mean))
        return self.set(accumulation_and_replication_reduction_type=reduction_type)

    @deprecated("2.0", "use accumulationAndReplicationReductionType instead")
    def accumulationReductionType(self, reduction_type: enums.ReductionType) -> _TrainingOptions:
        """The name that accumulationAndReplicationReductionType had in older SDKs."""
        return self.accumulationAndReplicationReductionType(reduction_type)

    def setMeanAccumulationAndReplicationReductionStrategy(
        self, mean_reduction_strategy: enums.MeanReductionStrategy
    ) -> _TrainingOptions:
        """Whether a mean is kept while accumulating or made from the sum at the end."""
        self.set(meanAccumulationAndReplicationReductionStrategy=mean_reduction_strategy)
        self._reduction_strategy_set = True
        return self

    @property
    def mean_reduction_strategy(self) -> enums.MeanReductionStrategy:
        """The strategy that was set, Post if none was."""
        return self._values["meanAccumulationAndReplicationReductionStrategy"]

    def setAutomaticLossScaling(self, enabled: bool) -> _TrainingOptions:
        """Whether the loss scaling of a half-precision model is adjusted while it trains."""
        return self.set(auto_loss_scaling=enabled)

    def setConvolutionDithering(self, enabled: bool) -> _TrainingOptions:
        """Whether convolutions start on different tiles, which balances memory."""
        return self.set(convolution_dithering=enabled)


_FLOAT_TYPES = Rule(lambda value: value in (torch.float32, torch.float16), "torch.float32 or torch.float16")
_NO_EFFECT = "it has no effect any more; cast tensors explicitly instead"


class _PrecisionOptions(OptionValues):
    """Exceptions, rounding, and the type of partial results."""

    TABLE: ClassVar[Mapping[str, Value]] = {
        "enable_floating_point_exceptions": Value(False, (bool,)),
        "enable_stochastic_rounding": Value(False, (bool,)),
        "partials_type": Value(torch.float32, (torch.dtype,), _FLOAT_TYPES),
    }

    def enableFloatingPointExceptions(self, enabled: bool) -> _PrecisionOptions:
        """Whether an invalid operation, a division by zero or an overflow stops the run."""
        return self.set(enable_floating_point_exceptions=enabled)

    def enableStochasticRounding(self, enabled: bool) -> _PrecisionOptions:
        """Whether float16 results are rounded up or down at random, in proportion to the distance."""
        return self.set(enable_stochastic_rounding=enabled)

    def setPartialsType(self, dtype: torch.dtype) -> _PrecisionOptions:
        """The type in which matrix products and convolutions of float16 hold partial sums."""
        self._check_not_frozen("partials_type")
        refusals.PARTIALS_TYPE(dtype=dtype, allowed=(torch.float32, torch.float16))
        return self.set(partials_type=dtype)

    @deprecated("3.0", _NO_EFFECT)
    def halfFloatCasting(self, half_float_casting: enums.HalfFloatCastingBehavior) -> _PrecisionOptions:
        """Accept the old choice between float16 and float32 for mixed inputs."""
        self._check_not_frozen("halfFloatCasting")
        if not isinstance(half_float_casting, enums.HalfFloatCastingBehavior):
            raise ValueError(f"{half_float_casting!r} was given: use a poptorch.HalfFloatCastingBehavior")
        return self

    @deprecated("3.0", _NO_EFFECT)
    def runningStatisticsAlwaysFloat(self, value: bool) -> _PrecisionOptions:
        """Accept the old choice of float32 for the running statistics of normalisation layers."""
        return self._accepted("runningStatisticsAlwaysFloat", value)

    @deprecated("3.0", _NO_EFFECT)
    def runningVarianceAlwaysFloat(self, value: bool) -> _PrecisionOptions:
        """Accept the first name of runningStatisticsAlwaysFloat."""
        return self._accepted("runningVarianceAlwaysFloat", value)

    def _accepted(self, name: str, value: bool) -> _PrecisionOptions:
        self._check_not_frozen(name)
        if not isinstance(value, bool):
            raise ValueError(f"{value!r} was given: use True or False")
        return self

    def __deepcopy__(self, memo: Any) -> _PrecisionOptions:
        # A torch.dtype is one of a kind and cannot be copied by older versions of torch.
        memo.update({id(dtype): dtype for dtype in (torch.float32, torch.float16)})
        return super().__deepcopy__(memo)


_IO_TILES = Rule(lambda value: value == 0 or (32 <= value <= 192 and value % 2 == 0), "an even number from 32 to 192")


class TensorLocationSettings(OptionValues):
    """The location of one kind of tensor; what was not set is left to the device."""

    TABLE: ClassVar[Mapping[str, Value]] = {
        "minElementsForOffChip": Value(None, (int,), NOT_NEGATIVE),
        "minElementsForReplicatedTensorSharding": Value(None, (int,), NOT_NEGATIVE),
        "onChip": Value(None, (bool,)),
        "useReplicatedTensorSharding": Value(None, (bool,)),
        "useIOTilesToLoad": Value(None, (bool,)),
        "useIOTilesToStore": Value(None, (bool,)),
    }

    def minElementsForOffChip(self, min_elements: int) -> TensorLocationSettings:
        """A tensor with fewer elements stays on the chip."""
        return self.set(minElementsForOffChip=min_elements)

    def minElementsForReplicatedTensorSharding(self, min_elements: int) -> TensorLocationSettings:
        """A tensor with fewer elements is kept whole on every replica."""
        return self.set(minElementsForReplicatedTensorSharding=min_elements)

    def useOnChipStorage(self, use: bool) -> TensorLocationSettings:
        """Whether the tensors stay on the chip between uses."""
        return self.set(onChip=use)

    def useReplicatedTensorSharding(self, use: bool) -> TensorLocationSettings:
        """Whether each replica holds a share of the tensor only."""
        return self.set(useReplicatedTensorSharding=use)

    def useIOTilesToLoad(self, use: bool) -> TensorLocationSettings:
        """Whether tiles set aside for transfers load the tensor."""
        return self.set(useIOTilesToLoad=use)

    def useIOTilesToStore(self, use: bool) -> TensorLocationSettings:
        """Whether tiles set aside for transfers store the tensor."""
        return self.set(useIOTilesToStore=use)

    def toDict(self) -> Dict[str, Any]:
        """What was set, by name."""
        return {name: value for name, value in super().toDict().items() if value is not None}


_LOCATION = Value(None, (TensorLocationSettings,))


class _TensorLocationOptions(OptionValues):
    """The locations of the four kinds of tensors, and the tiles set aside for transfers."""

    TABLE: ClassVar[Mapping[str, Value]] = {
        "numIOTiles": Value(0, (int,), _IO_TILES),
        "location_activation": _LOCATION,
        "location_weight": _LOCATION,
        "location_optimizer": _LOCATION,
        "location_accumulator": _LOCATION,
    }

    def numIOTiles(self, num_tiles: int) -> _TensorLocationOptions:
        """The number of tiles set aside for transfers: an even number from 32 to 192."""
        return self.set(numIOTiles=num_tiles)

    def setActivationLocation(self, location: TensorLocationSettings) -> _TensorLocationOptions:
        """The location of activations."""
        return self.set(location_activation=location)

    def setWeightLocation(self, location: TensorLocationSettings) -> _TensorLocationOptions:
        """The location of weights."""
        return self.set(location_weight=location)

    def setOptimizerLocation(self, location: TensorLocationSettings) -> _TensorLocationOptions:
        """The location of the optimizer's state."""
        return self.set(location_optimizer=location)

    def setAccumulatorLocation(self, location: TensorLocationSettings) -> _TensorLocationOptions:
        """The location of accumulated gradients."""
        return self.set(location_accumulator=location)

    def toDict(self) -> Dict[str, Any]:
        """The number of tiles and the settings that were given, by name."""
        return {
            name: value.toDict() if isinstance(value, TensorLocationSettings) else value
            for name, value in self._values.items()
            if value is not None
        }


class _DistributedOptions(OptionValues):
    """The number of processes and the rank of this one, initially from the variables of an MPI launcher."""

    TABLE: ClassVar[Mapping[str, Value]] = {
        "num_distributed_processes": Value(1, (int,), AT_LEAST_ONE),
        "distributed_process_id": Value(0, (int,), NOT_NEGATIVE),
    }

    def __init__(self) -> None:
        super().__init__()
        self.setEnvVarNames("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")

    def disable(self) -> _DistributedOptions:
        """Ignore the launcher: this is the only process."""
        return self.set(num_distributed_processes=1, distributed_process_id=0)

    def setEnvVarNames(self, var_num_processes: str, var_process_id: str) -> _DistributedOptions:
        """Read the number of processes and the rank from these variables, 1 and 0 where they are not set."""
        return self.configureProcessId(
            int(os.environ.get(var_process_id, "0")), int(os.environ.get(var_num_processes, "1"))
        )

    def configureProcessId(self, process_id: int, num_processes: int) -> _DistributedOptions:
        """Set the rank and the number of processes explicitly."""
        if isinstance(process_id, int) and isinstance(num_processes, int) and process_id >= max(num_processes, 1):
            raise AssertionError(f"Process {process_id} of {num_processes} was given: processes are counted from 0")
        return self.set(distributed_process_id=process_id, num_distributed_processes=num_processes)

    @property
    def processId(self) -> int:
        """The rank of this process."""
        return self.distributed_process_id

    @property
    def numProcesses(self) -> int:
        """The number of processes."""
        return self.num_distributed_processes


class _PopartOptions(OptionValues):
    """Session options by their PopART names; ``options`` reads them back."""

    TABLE: ClassVar[Mapping[str, Value]] = {
        "options": Value({}, (dict,)),
        "patterns": Value({}, (dict,)),
        "patterns_level": Value(2, (int,), NOT_NEGATIVE),
    }

    def set(self, *args: Any, **values: Any) -> _PopartOptions:
        """``set(name, value)`` sets one session option."""
        if not args:
            return super().set(**values)
        if len(args) != 2 or values or not isinstance(args[0], str):
            raise AssertionError(f"{args!r} was given: use set(name, value)")
        self._check_not_frozen(args[0])
        self._values["options"][args[0]] = args[1]
        return self

    def setEngineOptions(self, engine_options: Dict[str, str]) -> _PopartOptions:
        """Set Poplar's engine options, which are strings by name."""
        if not isinstance(engine_options, dict):
            raise AssertionError(f"{engine_options!r} was given: use a dictionary of engine options")
        return self.set("engineOptions", dict(engine_options))

    def setPatterns(self, patterns: Dict[str, bool], level: int = 2) -> _PopartOptions:
        """Turn patterns of the graph compiler on or off, starting from a level."""
        return self.set(patterns=patterns, patterns_level=level)


class _JitOptions(OptionValues):
    """The options of tracing, which the vendor has removed."""

    TABLE: ClassVar[Mapping[str, Value]] = {"trace_model": Value(False, (bool,))}

    @deprecated("3.0", "models are always dispatched; remove the call")
    def traceModel(self, trace_model: bool) -> _JitOptions:
        """Accept False; True asks for tracing, which the vendor has removed."""
        self._check_not_frozen("trace_model")
        refusals.TRACING(trace=trace_model)
        return self.set(trace_model=trace_model)
