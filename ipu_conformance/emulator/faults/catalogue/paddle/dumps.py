"""Ways for a dump of Paddle to tell another computation than the device's."""

from dataclasses import replace

from ipu_conformance.emulator.faults.catalogue import dumped

UNUSED = ("cast-lost",)
"""No net that is trained through Paddle's driver is of half precision."""

dumped.declare("paddle", [row for row in dumped.POPART if row[0] not in UNUSED], __name__)
dumped.declare(
    "paddle",
    (
        (
            "outputs-reversed",
            "the last output of a dump is its first",
            lambda graph: replace(graph, outputs=graph.outputs[::-1]),
        ),
        (
            "joined-in-front",
            "the last tensors that are joined are joined along their first axis",
            dumped.changed(dumped.of_type("Concat"), dumped.attribute("axis", lambda axis: 0)),
        ),
        (
            "statistics-still",
            "the last batch norm keeps its running statistics as they were",
            dumped.changed(dumped.of_type("BatchNormalization"), dumped.attribute("momentum", lambda share: 1.0)),
        ),
    ),
    __name__,
)
