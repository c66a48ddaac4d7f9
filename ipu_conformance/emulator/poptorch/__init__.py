"""The emulated PopTorch: what a program gets for ``import poptorch`` when the target is the emulator."""

import importlib
import pkgutil

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.poptorch import enums, log, options, profiling, testing
from ipu_conformance.emulator.poptorch.arguments import ICustomArgParser, registerCustomArgParser
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

log.configure()
for _module in pkgutil.iter_modules(__path__):  # noqa: F405
    if _module.name.startswith("faults_"):
        importlib.import_module(f"{__name__}.{_module.name}")
faults.activate_from_environment()

__all__ = [
    "Error",
    "ICustomArgParser",
    "Options",
    "RecoverableError",
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
    "setLogLevel",
    "testing",
    *enums.__all__,
]
