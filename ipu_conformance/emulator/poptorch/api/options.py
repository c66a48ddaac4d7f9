"""``poptorch.options``."""

from ipu_conformance.emulator.poptorch.ops.marked import Attribute
from ipu_conformance.emulator.poptorch.options import Options, TensorLocationSettings
from ipu_conformance.emulator.poptorch.options.diagnostics import ConfigFileError
from ipu_conformance.emulator.poptorch.options.strategies import (
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
)

__all__ = [
    "Attribute",
    "ConfigFileError",
    "Options",
    "ParallelPhasedExecution",
    "Phase",
    "PipelinedExecution",
    "SerialPhasedExecution",
    "ShardedExecution",
    "Stage",
    "TensorLocationSettings",
]
