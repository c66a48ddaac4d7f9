"""The emulated PopTorch: what a program gets for ``import poptorch`` when the target is the emulator."""

from ipu_conformance.emulator.poptorch import enums, log, options
from ipu_conformance.emulator.poptorch.enums import *  # noqa: F403
from ipu_conformance.emulator.poptorch.exceptions import (
    Error,
    RecoverableError,
    UnrecoverableError,
    createPoptorchError,
)
from ipu_conformance.emulator.poptorch.log import logger, setLogLevel
from ipu_conformance.emulator.poptorch.options import Options, TensorLocationSettings

log.configure()

__all__ = [
    "Error",
    "Options",
    "RecoverableError",
    "TensorLocationSettings",
    "UnrecoverableError",
    "createPoptorchError",
    "enums",
    "log",
    "logger",
    "options",
    "setLogLevel",
    *enums.__all__,
]
