"""``poptorch.enums``."""

from ipu_conformance.emulator.poptorch.options.enums import *  # noqa: F403
from ipu_conformance.emulator.poptorch.options.enums import __all__ as __all__
