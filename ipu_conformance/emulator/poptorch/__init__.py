"""The emulated PopTorch: what a program gets for ``import poptorch`` when the target is the emulator."""

import importlib
import pkgutil

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.poptorch import enums, log, ops, optim, options, profiling, testing
from ipu_conformance.emulator.poptorch.arguments import ICustomArgParser, registerCustomArgParser
from ipu_conformance.emulator.poptorch.asynchronous import AsynchronousDataAccessor
from ipu_conformance.emulator.poptorch.blocks import BeginBlock, Block, BlockFunction, removeBlocks
from ipu_conformance.emulator.poptorch.dataloader import DataLoader
from ipu_conformance.emulator.poptorch.enums import *  # noqa: F403
from ipu_conformance.emulator.poptorch.exceptions import (
    Error,
    RecoverableError,
    UnrecoverableError,
    createPoptorchError,
)
from ipu_conformance.emulator.poptorch.executables import load
from ipu_conformance.emulator.poptorch.executor import PoplarExecutor, inferenceModel, trainingModel
from ipu_conformance.emulator.poptorch.hardware import ipuHardwareIsAvailable, ipuHardwareVersion, isRunningOnIpu
from ipu_conformance.emulator.poptorch.hooks import registerPostCompileHook, registerPreCompileHook
from ipu_conformance.emulator.poptorch.log import logger, setLogLevel
from ipu_conformance.emulator.poptorch.ops import *  # noqa: F403
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
    "AsynchronousDataAccessor",
    "BeginBlock",
    "Block",
    "BlockFunction",
    "DataLoader",
    "Error",
    "ICustomArgParser",
    "Options",
    "ParallelPhasedExecution",
    "Phase",
    "PipelinedExecution",
    "PoplarExecutor",
    "RecoverableError",
    "SerialPhasedExecution",
    "ShardedExecution",
    "Stage",
    "TensorLocationSettings",
    "UnrecoverableError",
    "createPoptorchError",
    "enums",
    "inferenceModel",
    "ipuHardwareIsAvailable",
    "ipuHardwareVersion",
    "isRunningOnIpu",
    "load",
    "logger",
    "module_repr",
    "ops",
    "optim",
    "options",
    "profiling",
    "registerCustomArgParser",
    "registerPostCompileHook",
    "registerPreCompileHook",
    "removeBlocks",
    "setLogLevel",
    "testing",
    "trainingModel",
    *enums.__all__,
    *ops.__all__,
]
