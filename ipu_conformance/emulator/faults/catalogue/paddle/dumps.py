"""Ways for a dump of Paddle to tell another computation than the device's."""

from ipu_conformance.emulator.faults.catalogue import dumped

UNUSED = "sub-swapped"
"""No net that is trained through Paddle's driver has a difference."""

dumped.declare("paddle", [row for row in dumped.POPART if row[0] != UNUSED], __name__)
