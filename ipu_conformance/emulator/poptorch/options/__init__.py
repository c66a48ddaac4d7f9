"""What a program sets and sees: options, enumerations, execution strategies, errors and the log.

This is the lowest room of the front end: it imports none of the others.
"""

from ipu_conformance.emulator.poptorch.options.options import Options
from ipu_conformance.emulator.poptorch.options.sections import TensorLocationSettings

__all__ = ["Options", "TensorLocationSettings"]
