"""Ways for programs to be placed, fed, reduced, updated and brought home wrongly."""

from __future__ import annotations

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.paddle.rules import POINT

faults.register_point(POINT, "rule: which decision of execution this is; value: what was decided")
