"""poptorch.Options: how a model is compiled and run."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, ClassVar, Dict, List, Mapping, Optional, Union

from ipu_conformance.emulator.poptorch.options import enums, environment, files, strategies
from ipu_conformance.emulator.poptorch.options.diagnostics import deprecated, limit_repeats, logger
from ipu_conformance.emulator.poptorch.options.sections import (
    _DistributedOptions,
    _JitOptions,
    _PopartOptions,
    _PrecisionOptions,
    _TensorLocationOptions,
    _TrainingOptions,
)
from ipu_conformance.emulator.poptorch.options.values import AT_LEAST_ONE, NOT_NEGATIVE, OptionValues, Rule, Value

_NONE = type(None)
_STRINGS = Rule(lambda value: all(isinstance(item, str) for item in value), "a list of strings")
_OFFLINE_TARGETS: Mapping[Union[str, int], int] = {1: 1, 2: 2, 21: 21, "ipu1": 1, "ipu2": 2, "ipu21": 21}
_SUBSETS = {
    "Training": "_training",
    "Precision": "_precision",
    "TensorLocations": "_tensor_locations",
    "Distributed": "_distributed",
    "Jit": "_jit",
    "_Popart": "_popart",
}


class Options(OptionValues):
    """Every option of a model; each method returns the options, so that calls can be chained.

    Options freeze when a model or a DataLoader uses them; ``clone`` gives a copy that can be changed.
    """

    TABLE: ClassVar[Mapping[str, Value]] = {
        "device_iterations": Value(1, (int,), AT_LEAST_ONE),
        "replication_factor": Value(1, (int,), AT_LEAST_ONE),
        "input_group_size": Value(1, (int,), AT_LEAST_ONE),
        "input_group_type": Value(enums.CommGroupType.Consecutive, (enums.CommGroupType,)),
        "broadcast_buffers": Value(True, (bool,)),
        "output_mode": Value(enums.OutputMode.Default, (enums.OutputMode,)),
        "output_return_period": Value(1, (int,), AT_LEAST_ONE),
        "anchored_tensors": Value({}, (dict,)),
        "available_memory_proportion": Value({}, (dict,)),
        "auto_round_num_ipus": Value(False, (bool,)),
        "use_model": Value(False, (bool,)),
        "ipu_id": Value(None, (int, _NONE)),
        "offline_ipu_version": Value(None, (int, _NONE)),
        "connection_type": Value(enums.ConnectionType.Always, (enums.ConnectionType,)),
        "sync_pattern": Value(enums.SyncPattern.Full, (enums.SyncPattern,)),
        "random_seed": Value(None, (int, _NONE), Rule(lambda value: value is None or value >= 0, "0 or more")),
        "cache_path": Value("", (str,)),
        "stable_norm": Value(False, (bool,)),
        "synthetic_data": Value(False, (bool,)),
        "profile_dir": Value(None, (str, _NONE)),
        "log_cycle_count": Value(False, (bool,)),
        "log_dir": Value(".", (str,)),
        "max_repeat_logs": Value(4, (int, _NONE), Rule(lambda value: value is None or value >= 0, "0 or more or None")),
        "model_name": Value("", (str,)),
        "show_compilation_progress_bar": Value(True, (bool,)),
        "relax_optimizer_checks": Value(False, (bool,)),
        "source_location_excludes": Value(files.DEFAULT_EXCLUDES, (list,), _STRINGS),
        "module_namescope_enabled": Value(True, (bool,)),
        "updatable_named_buffers": Value([], (list,), _STRINGS),
    }

    def __init__(self) -> None:
        super().__init__()
        self._training = _TrainingOptions()
        self._precision = _PrecisionOptions()
        self._tensor_locations = _TensorLocationOptions()
        self._distributed = _DistributedOptions()
        self._jit = _JitOptions()
        self._popart = _PopartOptions()
        self._strategy: Any = None
        environment.apply(self)

    @property
    def Training(self) -> _TrainingOptions:
        """What only a training model uses."""
        return self._training

    @property
    def Precision(self) -> _PrecisionOptions:
        """Floating-point behaviour of the device."""
        return self._precision

    @property
    def TensorLocations(self) -> _TensorLocationOptions:
        """In which memory tensors live."""
        return self._tensor_locations

    @property
    def Distributed(self) -> _DistributedOptions:
        """Which of several processes this one is."""
        return self._distributed

    @property
    def Jit(self) -> _JitOptions:
        """What is left of tracing."""
        return self._jit

    @property
    def _Popart(self) -> _PopartOptions:
        """What is handed to the layer below as it is."""
        return self._popart

    @property
    @deprecated("2.0", "use _Popart instead")
    def Popart(self) -> _PopartOptions:
        """The name that _Popart had in older SDKs."""
        return self._popart

    # Batching.

    def deviceIterations(self, device_iterations: int) -> Options:
        """The number of iterations that one call runs on the device."""
        return self.set(device_iterations=device_iterations)

    def replicationFactor(self, replication_factor: int) -> Options:
        """The number of copies of the model that train in step."""
        return self.set(replication_factor=replication_factor)

    def inputReplicaGrouping(
        self, input_group_size: int, input_group_type: enums.CommGroupType = enums.CommGroupType.Consecutive
    ) -> Options:
        """The number of replicas that are fed the same input, and which replicas those are."""
        allowed = (enums.CommGroupType.Consecutive, enums.CommGroupType.Orthogonal)
        if input_group_type not in allowed:
            raise AssertionError(f"{input_group_type!r} was given: replicas are grouped Consecutive or Orthogonal")
        return self.set(input_group_size=input_group_size, input_group_type=input_group_type)

    def broadcastBuffers(self, broadcast_buffers: bool = True) -> Options:
        """Whether every replica begins with the same buffers; otherwise each has its own, along a new first axis."""
        return self.set(broadcast_buffers=broadcast_buffers)

    # Outputs.

    def outputMode(self, output_mode: enums.OutputMode, output_return_period: Optional[int] = None) -> Options:
        """Which of a run's outputs come back; EveryN needs a period, the other modes have none."""
        self._check_not_frozen("output_mode")
        self._check("output_mode", output_mode)
        return self.set(output_mode=output_mode, output_return_period=_period(output_mode, output_return_period))

    @deprecated("2.3", "use outputMode instead")
    def anchorMode(self, anchor_mode: enums.OutputMode, anchor_return_period: Optional[int] = None) -> Options:
        """The name that outputMode had in older SDKs."""
        return self.outputMode(anchor_mode, anchor_return_period)

    def defaultOutputMode(self) -> bool:
        """Whether the output mode is left to the kind of model: Final for training, All for inference."""
        return self.output_mode == enums.OutputMode.Default

    def anchorTensor(
        self,
        short_name: str,
        long_name: str,
        output_mode: Optional[enums.OutputMode] = None,
        output_return_period: Optional[int] = None,
    ) -> Options:
        """Bring the tensor ``long_name`` back under ``short_name``; the model's own output mode is the default."""
        self._check_not_frozen("anchored_tensors")
        if not isinstance(short_name, str) or not isinstance(long_name, str):
            raise AssertionError(f"{short_name!r} and {long_name!r} were given: use two names of tensors")
        if output_mode is not None:
            self._check("output_mode", output_mode)
        mode = enums.OutputMode.Default if output_mode is None else output_mode
        self.anchored_tensors[short_name] = [long_name, mode, _period(mode, output_return_period)]
        return self

    # Placement and devices.

    @property
    def _execution_strategy(self) -> Any:
        """The strategy that was set, a pipeline if none was."""
        if self._strategy is None:
            object.__setattr__(self, "_strategy", strategies.PipelinedExecution())
        return self._strategy

    def setExecutionStrategy(self, strategy: Any) -> Options:
        """How the blocks of a model share the IPUs."""
        self._check_not_frozen("execution_strategy")
        if not isinstance(strategy, strategies.STRATEGIES):
            names = ", ".join(kind.__name__ for kind in strategies.STRATEGIES)
            raise AssertionError(f"{strategy!r} was given: use one of {names}")
        self._strategy = strategy
        return self

    def setAvailableMemoryProportion(self, available_memory_proportion: Dict[str, float]) -> Options:
        """The share of each IPU's memory, from 0 to 1, that matrix products and convolutions may use in between."""
        self._check("available_memory_proportion", available_memory_proportion)
        proportions = {}
        for name, share in available_memory_proportion.items():
            if not isinstance(name, str) or not name.startswith("IPU") or not name[3:].isdigit():
                raise AssertionError(f"{name!r} was given: name the IPUs IPU0, IPU1 and so on")
            if not isinstance(share, (int, float)) or not 0 <= share <= 1:
                raise AssertionError(f"{share!r} was given for {name}: use a share from 0 to 1")
            proportions[int(name[3:])] = float(share)
        return self.set(available_memory_proportion=proportions)

    def autoRoundNumIPUs(self, auto_round_num_ipus: bool = True) -> Options:
        """Whether a number of IPUs that is not a power of two is rounded up to one."""
        return self.set(auto_round_num_ipus=auto_round_num_ipus)

    def useIpuModel(self, use_model: bool) -> Options:
        """Whether the vendor's own model of an IPU is meant; the emulator runs the same either way."""
        return self.set(use_model=use_model)

    def useIpuId(self, ipu_id: int) -> Options:
        """The device to attach to, by its number."""
        if isinstance(ipu_id, int) and ipu_id < 0:
            raise AssertionError(f"IPU {ipu_id} was given: {NOT_NEGATIVE.words} is needed")
        self._check_is_given("ipu_id", ipu_id)
        return self.set(ipu_id=ipu_id)

    def useOfflineIpuTarget(self, ipu_version: Union[str, int] = 2) -> Options:
        """Compile for a generation of IPU (1, 2 or 21) without attaching to one."""
        if ipu_version not in _OFFLINE_TARGETS:
            raise AssertionError(f"{ipu_version!r} was given: the offline targets are 1, 2 and 21")
        return self.set(connection_type=enums.ConnectionType.Never, offline_ipu_version=_OFFLINE_TARGETS[ipu_version])

    def connectionType(self, connection_type: enums.ConnectionType) -> Options:
        """When a model attaches to its device."""
        return self.set(connection_type=connection_type)

    def syncPattern(self, sync_pattern: enums.SyncPattern) -> Options:
        """Which IPUs wait for one another."""
        return self.set(sync_pattern=sync_pattern)

    # Running.

    def randomSeed(self, random_seed: int) -> Options:
        """The seed of the device's random numbers, and of torch's."""
        import torch

        self._check_is_given("random_seed", random_seed)
        self.set(random_seed=random_seed)
        torch.manual_seed(random_seed)
        return self

    def enableExecutableCaching(self, path: Optional[str]) -> Options:
        """Keep compiled models in this folder and take them from it; None or an empty path turns that off."""
        return self.set(cache_path="" if path is None else path)

    def enableStableNorm(self, enabled: bool) -> Options:
        """Whether variances are computed from centred values, more slowly and more exactly."""
        return self.set(stable_norm=enabled)

    def enableSyntheticData(self, enabled: bool) -> Options:
        """Whether the device generates its input instead of reading the host's."""
        return self.set(synthetic_data=enabled)

    def enableProfiling(self, profile_dir: Optional[str] = None) -> Options:
        """Write reports of memory and execution below this folder, the working directory by default."""
        self.set(profile_dir="." if profile_dir is None else profile_dir)
        engine = dict(self._popart.options.get("engineOptions", {}))
        engine.update({"autoReport.all": "true", "autoReport.directory": self.profile_dir})
        self._popart.setEngineOptions(engine)
        return self

    def logCycleCount(self, log_cycle_count: bool) -> Options:
        """Whether each run logs the cycles that it took."""
        return self.set(log_cycle_count=log_cycle_count)

    def logDir(self, log_dir: str) -> Options:
        """The folder of log files."""
        return self.set(log_dir=log_dir)

    def maxRepeatLogs(self, max_lines: Optional[int]) -> Options:
        """How many times one line may be logged; None for always."""
        return self.set(max_repeat_logs=max_lines)

    def modelName(self, name: str) -> Options:
        """The name of the model in reports."""
        return self.set(model_name=name)

    def showCompilationProgressBar(self, show: bool = True) -> Options:
        """Whether a bar shows how far compilation is."""
        return self.set(show_compilation_progress_bar=show)

    def relaxOptimizerAttributesChecks(self, relax: bool = True) -> Options:
        """Whether attributes of an optimizer that the device does not use pass without a warning."""
        return self.set(relax_optimizer_checks=relax)

    def sourceLocationExcludes(self, excludes: List[str]) -> Options:
        """Parts of paths of files that are never named as where an operation comes from."""
        return self.set(source_location_excludes=excludes)

    def appendToLocationExcludes(self, *excludes: str) -> Options:
        """Exclude more files than those already excluded."""
        return self.set(source_location_excludes=[*self.source_location_excludes, *excludes])

    def disableModuleNamescope(self) -> Options:
        """Leave the names of modules out of the names of operations."""
        return self.set(module_namescope_enabled=False)

    def updatableNamedBuffers(self, buffers: List[str]) -> Options:
        """The buffers that copyNamedBuffersToDevice may replace."""
        return self.set(updatable_named_buffers=buffers)

    # Files and copies.

    def loadFromFile(self, filepath: Union[str, Path]) -> Options:
        """Apply a file with one call of an option a line."""
        files.load(self, filepath)
        return self

    def from_json(self, string: str) -> Options:
        """Apply a JSON object whose keys name methods and whose values are their arguments."""
        files.apply_json(self, string)
        return self

    def clone(self) -> Options:
        """A copy that can be changed."""
        return copy.deepcopy(self)

    def toDict(self) -> Dict[str, Any]:
        """All values in one flat dictionary; those of Precision and Jit, which never reach the device, are left out."""
        merged = super().toDict()
        for subset in (self._training, self._distributed, self._tensor_locations):
            merged.update(subset.toDict())
        merged["patterns"] = dict(self._popart.patterns)
        merged["patterns_level"] = self._popart.patterns_level
        merged.update({f"popart.{name}": value for name, value in self._popart.options.items()})
        return merged

    def _check_is_given(self, name: str, value: Any) -> None:
        if value is None:
            raise AssertionError(f"Invalid type NoneType for option {name}: must be int")

    def _freeze(self) -> None:
        if not self._is_frozen:
            # A model begins to use the options: the environment overrides them, and repeated log lines count from here.
            environment.apply_engine_options(self)
            limit_repeats(self.max_repeat_logs)
        super()._freeze()
        for attribute in _SUBSETS.values():
            getattr(self, attribute)._freeze()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Options):
            return NotImplemented
        return super().__eq__(other) is True and all(
            getattr(self, attribute) == getattr(other, attribute) for attribute in _SUBSETS.values()
        )

    __hash__ = object.__hash__


def _period(mode: enums.OutputMode, period: Optional[int]) -> int:
    """The return period of a mode: needed by EveryN, ignored with a warning by the others."""
    if mode == enums.OutputMode.EveryN:
        if not isinstance(period, int) or period < 1:
            raise AssertionError(f"{period!r} was given: OutputMode.EveryN needs an output_return_period of 1 or more")
        return period
    if period is not None:
        logger.warning("output_return_period %s is ignored: OutputMode.%s has no period", period, mode.name)
    return 1
