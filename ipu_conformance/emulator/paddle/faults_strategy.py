"""Ways for strategies, places and the environment to be wrong."""

from __future__ import annotations

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.faults import Fault

POINTS = {
    "paddle.option": "value: what reading an option gives; name: the option's; default: what it is when not set",
}
for _name, _what in POINTS.items():
    faults.register_point(_name, _what)

for _fault in (
    Fault("paddle-option-forgotten", "plan", "paddle.option", "an option reads as its default whatever was set",
          lambda value, default, **context: default),
):  # fmt: skip
    faults.register(_fault)
