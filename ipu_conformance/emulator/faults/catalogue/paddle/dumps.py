"""Ways for a dump of Paddle to tell another computation than the device's."""

from ipu_conformance.emulator.faults.catalogue import dumped

dumped.declare("paddle", dumped.POPART, __name__)
