"""Ways for the passes to be wrong."""

from __future__ import annotations

from ipu_conformance.emulator import faults

POINT = "paddle.pass"
faults.register_point(POINT, "value: the record of the compilation, just changed by a pass; name: the pass")
