"""Ways for the emulated PopTorch to be wrong; what it refuses are faults, too, each row one."""

from ipu_conformance.emulator.poptorch.refusals import models, ops, optim, options, placement  # noqa: F401
