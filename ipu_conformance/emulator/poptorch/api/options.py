"""``poptorch.options``."""

from ipu_conformance.emulator.poptorch.options import *  # noqa: F403
from ipu_conformance.emulator.poptorch.options import __all__ as __all__
