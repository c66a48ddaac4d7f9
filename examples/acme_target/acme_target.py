"""A target of a vendor: eight accelerators behind the PopTorch and the Paddle API.

There is no such device, so this one borrows the built-in emulator to have something that answers. A real target loads
its driver in ``activate`` instead, and leaves ``kind`` at "hardware".
"""

from __future__ import annotations

import os
from typing import Mapping, Optional

from ipu_conformance.targets import Availability, Emulator, Framework, Inspector, Target

SERIAL_VARIABLE = "ACME_SERIAL"


class Acme(Target):
    """What ``ipu-conformance qualify --target acme`` runs on."""

    kind = "emulator"

    def probe(self, framework: Framework) -> Availability:
        """Say, without importing the framework, whether its cases can run here."""
        if framework.name == "tensorflow":
            return Availability(False, "Acme has no TensorFlow")
        borrowed = Emulator().probe(framework)
        return Availability(borrowed.usable, "an Acme accelerator" if borrowed.usable else borrowed.reason)

    def activate(self, framework: Framework) -> None:
        """Make the vendor's API importable, once for each process."""
        Emulator().activate(framework)

    def inspector(self, framework: Framework) -> Optional[Inspector]:
        """Show what the vendor's API does not; None is a good answer."""
        return Emulator().inspector(framework)

    def ipus(self) -> int:
        """How many devices a case may use; one that needs more is skipped."""
        return 8

    def identity(self) -> Mapping[str, str]:
        """Say in reports which devices these are."""
        return {"model": "Acme A8", "serial": os.environ.get(SERIAL_VARIABLE, "unknown")}
