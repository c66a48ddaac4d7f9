"""The emulated PopTorch: what a program gets for ``import poptorch`` when the target is the emulator."""

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.poptorch import enums, log, options
from ipu_conformance.emulator.poptorch.api import ops, optim, profiling, testing
from ipu_conformance.emulator.poptorch.api.ops import *  # noqa: F403
from ipu_conformance.emulator.poptorch.compile.blocks import BeginBlock, Block, BlockFunction, removeBlocks
from ipu_conformance.emulator.poptorch.compile.hooks import registerPostCompileHook, registerPreCompileHook
from ipu_conformance.emulator.poptorch.compile.representation import module_repr
from ipu_conformance.emulator.poptorch.compile.strategies import (
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
)
from ipu_conformance.emulator.poptorch.data.asynchronous import AsynchronousDataAccessor
from ipu_conformance.emulator.poptorch.data.dataloader import DataLoader
from ipu_conformance.emulator.poptorch.enums import *  # noqa: F403
from ipu_conformance.emulator.poptorch.exceptions import (
    Error,
    RecoverableError,
    UnrecoverableError,
    createPoptorchError,
)
from ipu_conformance.emulator.poptorch.log import logger, setLogLevel
from ipu_conformance.emulator.poptorch.options import Options, TensorLocationSettings
from ipu_conformance.emulator.poptorch.run.arguments import ICustomArgParser, registerCustomArgParser
from ipu_conformance.emulator.poptorch.run.executables import load
from ipu_conformance.emulator.poptorch.run.executor import PoplarExecutor, inferenceModel, trainingModel
from ipu_conformance.emulator.poptorch.run.hardware import ipuHardwareIsAvailable, ipuHardwareVersion, isRunningOnIpu

log.configure()
faults.load("poptorch")
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
