"""The emulated PopTorch: what a program gets for ``import poptorch`` when the target is the emulator."""

import importlib
import pkgutil

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.poptorch import enums, log, options, profiling, testing
from ipu_conformance.emulator.poptorch.arguments import ICustomArgParser, registerCustomArgParser
from ipu_conformance.emulator.poptorch.blocks import BeginBlock, Block, BlockFunction, removeBlocks
from ipu_conformance.emulator.poptorch.enums import *  # noqa: F403
from ipu_conformance.emulator.poptorch.exceptions import (
    Error,
    RecoverableError,
    UnrecoverableError,
    createPoptorchError,
)
from ipu_conformance.emulator.poptorch.hardware import (
    getIpuTensorId,
    ipuHardwareIsAvailable,
    ipuHardwareVersion,
    isRunningOnIpu,
)
from ipu_conformance.emulator.poptorch.hooks import registerPostCompileHook, registerPreCompileHook
from ipu_conformance.emulator.poptorch.log import logger, setLogLevel
from ipu_conformance.emulator.poptorch.options import Options, TensorLocationSettings
from ipu_conformance.emulator.poptorch.representation import module_repr
from ipu_conformance.emulator.poptorch.strategies import (
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
)

log.configure()
for _module in pkgutil.iter_modules(__path__):  # noqa: F405
    if _module.name.startswith("faults_"):
        importlib.import_module(f"{__name__}.{_module.name}")
faults.activate_from_environment()

__all__ = [
    "BeginBlock",
    "Block",
    "BlockFunction",
    "Error",
    "ICustomArgParser",
    "Options",
    "ParallelPhasedExecution",
    "Phase",
    "PipelinedExecution",
    "RecoverableError",
    "SerialPhasedExecution",
    "ShardedExecution",
    "Stage",
    "TensorLocationSettings",
    "UnrecoverableError",
    "createPoptorchError",
    "enums",
    "getIpuTensorId",
    "ipuHardwareIsAvailable",
    "ipuHardwareVersion",
    "isRunningOnIpu",
    "logger",
    "module_repr",
    "options",
    "profiling",
    "registerCustomArgParser",
    "registerPostCompileHook",
    "registerPreCompileHook",
    "removeBlocks",
    "setLogLevel",
    "testing",
    *enums.__all__,
]

_LATER = {
    "asynchronous": ("AsynchronousDataAccessor",),
    "dataloader": ("DataLoader",),
    "executables": ("load",),
    "executor": ("PoplarExecutor", "inferenceModel", "trainingModel"),
    "ops": ("Attribute", "CPU", "MultiConv", "NameScope", "cond", "ctc_beam_search_decoder", "custom_op",
            "dynamic_slice", "dynamic_update", "for_loop", "fps", "identity_loss", "ipu_print_tensor", "nearest", "nop",
            "recomputationCheckpoint", "serializedMatMul", "set_available_memory", "set_overlap_for_input",
            "set_overlap_for_output"),
}  # fmt: skip
_MODULES = ("ops", "optim")


def __getattr__(name: str) -> object:
    for module, names in _LATER.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'poptorch' has no attribute {name!r}")
