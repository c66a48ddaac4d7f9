"""Every option with a call that is allowed, one that is not, and the name under which its value is read back.

Values are written as source text and evaluated where poptorch and torch may be imported, so that collection imports
no framework.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from ipu_conformance import check

from ..lazily import poptorch, torch


@dataclass(frozen=True)
class Row:
    """``method(allowed)`` sets an option, ``method(refused)`` is an AssertionError; ``reads`` names the value."""

    method: str
    allowed: str
    refused: Optional[str] = None
    reads: Optional[str] = None
    default: Optional[str] = None
    json: Optional[str] = None
    """The argument in JSON, where it can be written so."""

    def __str__(self) -> str:
        return self.method


OPTIONS = (
    Row("deviceIterations", "7", "'7'", "device_iterations", "1", "7"),
    Row("replicationFactor", "3", "2.5", "replication_factor", "1", "3"),
    Row("inputReplicaGrouping", "2", "'2'", "input_group_size", "1", "2"),
    Row("broadcastBuffers", "False", "'no'", "broadcast_buffers", "True", "false"),
    Row("outputMode", "poptorch.OutputMode.All", "'All'", "output_mode"),
    Row("randomSeed", "42", "'42'", "random_seed", json="42"),
    Row("setExecutionStrategy", "poptorch.ShardedExecution()", "'sharded'"),
    Row("setAvailableMemoryProportion", "{'IPU0': 0.25}", "0.25"),
    Row("autoRoundNumIPUs", "True", "'yes'", "auto_round_num_ipus", "False", "true"),
    Row("useIpuModel", "True", "'yes'", json="true"),
    Row("useIpuId", "3", "'3'", json="3"),
    Row("useOfflineIpuTarget", "2", "'ipu0'", json="2"),
    Row("connectionType", "poptorch.ConnectionType.OnDemand", "'OnDemand'", "connection_type"),
    Row("syncPattern", "poptorch.SyncPattern.SinglePipeline", "'SinglePipeline'", "sync_pattern"),
    Row("enableExecutableCaching", "'/tmp/executables'", "3", json='"/tmp/executables"'),
    Row("enableStableNorm", "True", "'yes'", json="true"),
    Row("enableSyntheticData", "True", "'yes'", json="true"),
    Row("enableProfiling", "'/tmp/profile'", json='"/tmp/profile"'),
    Row("logCycleCount", "True", "'yes'", "log_cycle_count", "False", "true"),
    Row("logDir", "'/tmp/logs'", "3", "log_dir", json='"/tmp/logs"'),
    Row("maxRepeatLogs", "2", "'2'", json="2"),
    Row("modelName", "'lenet'", "3", json='"lenet"'),
    Row("showCompilationProgressBar", "False", "'no'", "show_compilation_progress_bar", "True", "false"),
    Row("relaxOptimizerAttributesChecks", "True", "'yes'", "relax_optimizer_checks", "False", "true"),
    Row("sourceLocationExcludes", "['mine']", "3"),
    Row("appendToLocationExcludes", "'mine'", "3"),
    Row("updatableNamedBuffers", "['mean']", "3", "updatable_named_buffers"),
    Row("Training.gradientAccumulation", "5", "'5'", "Training.gradient_accumulation", "1", "5"),
    Row(
        "Training.accumulationAndReplicationReductionType", "poptorch.ReductionType.Sum", "'Sum'",
        "Training.accumulation_and_replication_reduction_type", "poptorch.ReductionType.Mean",
    ),
    Row(
        "Training.setMeanAccumulationAndReplicationReductionStrategy",
        "poptorch.MeanReductionStrategy.Running", "'Running'",
    ),
    Row("Training.setAutomaticLossScaling", "True", "'yes'", json="true"),
    Row("Training.setConvolutionDithering", "True", "'yes'", json="true"),
    Row(
        "Precision.enableFloatingPointExceptions", "True", "'yes'",
        "Precision.enable_floating_point_exceptions", "False", "true",
    ),
    Row("Precision.enableStochasticRounding", "True", "'yes'", "Precision.enable_stochastic_rounding", "False", "true"),
    Row("Precision.setPartialsType", "torch.half", "torch.int32"),
    Row("TensorLocations.numIOTiles", "64", "33", json="64"),
    Row("TensorLocations.setActivationLocation", "poptorch.TensorLocationSettings().useOnChipStorage(False)", "True"),
    Row("TensorLocations.setWeightLocation", "poptorch.TensorLocationSettings().useOnChipStorage(False)", "True"),
    Row("TensorLocations.setOptimizerLocation", "poptorch.TensorLocationSettings().useOnChipStorage(False)", "True"),
    Row("TensorLocations.setAccumulatorLocation", "poptorch.TensorLocationSettings().useOnChipStorage(False)", "True"),
    Row("_Popart.setEngineOptions", "{'target.syncReplicasIndependently': 'true'}", "3"),
    Row("_Popart.setPatterns", "{'Inplace': False}", "3"),
)  # fmt: skip
REFUSED = tuple(row for row in OPTIONS if row.refused is not None)
READ_BACK = tuple(row for row in OPTIONS if row.reads is not None)
DEFAULTS = tuple(row for row in OPTIONS if row.default is not None)
IN_JSON = tuple(row for row in OPTIONS if row.json is not None)


def with_one(row: Row) -> Any:
    """Options of which a program has set the row's one."""
    options = poptorch.Options()
    reach(options, row.method)(evaluate(row.allowed))
    return options


def evaluate(text: str, **names: Any) -> Any:
    """The value that a row's text stands for, where it may also speak of ``names``."""
    return eval(text, {"poptorch": poptorch, "torch": torch, **names})


def reach(options: Any, path: str) -> Any:
    """What ``path`` names below the options."""
    for name in path.split("."):
        options = getattr(options, name)
    return options


def owner(options: Any, path: str) -> Any:
    """The options, or the sub-set of them, that the method belongs to."""
    return reach(options, path.rsplit(".", 1)[0]) if "." in path else options


def plain(value: Any) -> Any:
    """A value that compares whether an SDK keeps enumerations as members or as numbers."""
    return getattr(value, "value", value)


def assert_reads(options: Any, **expected: Any) -> None:
    """Each of these values is read back; two underscores stand for the dot behind a sub-set."""
    __tracebackhide__ = True
    for name, value in expected.items():
        path = name.replace("__", ".")
        check.equal(actual=plain(reach(options, path)), expected=plain(value), what=f"the option {path}")
