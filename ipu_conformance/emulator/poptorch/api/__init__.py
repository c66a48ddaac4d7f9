"""The emulated PopTorch: what a program gets for ``import poptorch`` when the target is the emulator.

Everything that can be reached from here is a name of the vendor.
"""

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.poptorch.api import enums, ops, optim, options, poptorch_core, profiling, testing
from ipu_conformance.emulator.poptorch.api.enums import *  # noqa: F403
from ipu_conformance.emulator.poptorch.api.ops import *  # noqa: F403
from ipu_conformance.emulator.poptorch.api.options import *  # noqa: F403
from ipu_conformance.emulator.poptorch.compile.blocks import module_repr
from ipu_conformance.emulator.poptorch.compile.observers import registerPostCompileHook, registerPreCompileHook
from ipu_conformance.emulator.poptorch.data.asynchronous import AsynchronousDataAccessor
from ipu_conformance.emulator.poptorch.data.dataloader import DataLoader
from ipu_conformance.emulator.poptorch.options.diagnostics import (
    Error,
    RecoverableError,
    UnrecoverableError,
    configure_log,
    createPoptorchError,
    logger,
    setLogLevel,
)
from ipu_conformance.emulator.poptorch.run.arguments import ICustomArgParser, registerCustomArgParser
from ipu_conformance.emulator.poptorch.run.executables import load
from ipu_conformance.emulator.poptorch.run.executor import PoplarExecutor, inferenceModel, trainingModel
from ipu_conformance.emulator.poptorch.run.hardware import (
    getIpuTensorId,
    ipuHardwareIsAvailable,
    ipuHardwareVersion,
    isRunningOnIpu,
)
from ipu_conformance.emulator.poptorch.run.process import poptorchAtExit, registerGeometricCustomArgParsers

__version__ = "3.4.0+emulator"

__all__ = [
    "AsynchronousDataAccessor",
    "DataLoader",
    "Error",
    "ICustomArgParser",
    "PoplarExecutor",
    "RecoverableError",
    "UnrecoverableError",
    "createPoptorchError",
    "enums",
    "getIpuTensorId",
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
    "poptorchAtExit",
    "poptorch_core",
    "profiling",
    "registerCustomArgParser",
    "registerGeometricCustomArgParsers",
    "registerPostCompileHook",
    "registerPreCompileHook",
    "setLogLevel",
    "testing",
    "trainingModel",
    *enums.__all__,
    *ops.__all__,
    *options.__all__,
]

faults.wake("poptorch")
configure_log()
del configure_log, faults
