"""The vendor's native module, as far as programs import names from it: the exceptions and what hardware there is."""

from ipu_conformance.emulator.poptorch.options.diagnostics import Error, RecoverableError, UnrecoverableError
from ipu_conformance.emulator.poptorch.run.hardware import ipuHardwareIsAvailable, ipuHardwareVersion

__all__ = ["Error", "RecoverableError", "UnrecoverableError", "ipuHardwareIsAvailable", "ipuHardwareVersion"]
