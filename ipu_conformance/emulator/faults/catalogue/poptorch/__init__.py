"""Ways for the emulated PopTorch to be wrong."""

import ipu_conformance.emulator.poptorch.refusals  # noqa: F401 (each row is a fault, too)
