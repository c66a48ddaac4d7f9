"""Ways for a dump of PopTorch to tell another computation than the device's, and for a plan to be wrong with it."""

from __future__ import annotations

from typing import Any, Callable

from ipu_conformance.emulator.faults.catalogue import dumped, patch

dumped.declare("poptorch", dumped.POPART, __name__)
dumped.declare(
    "poptorch",
    (
        (
            "joined-in-front",
            "the last tensors that are joined are joined along their first axis",
            dumped.changed(dumped.of_type("Concat"), dumped.attribute("axis", lambda axis: 0)),
        ),
        ("nesterov-lost", "the last weight follows its gradient alone", dumped.lost(dumped.of_type("SGD1Nesterov"))),
        (
            "decay-halved",
            "the last gradient takes half of its decay",
            dumped.changed(dumped.of_type("ScaledAdd"), dumped.attribute("scale1", lambda share: share / 2)),
        ),
        ("mask-lost", "the last gradient passes what was dropped", dumped.lost(dumped.of_type("DropoutGrad"))),
    ),
    __name__,
)


@patch("poptorch-schedule-reversed", "plan", "core.schedules:_grid", "plan and device take micro-batches in reverse")
def _reversed(original: Callable[..., Any], shape: Any) -> Any:
    stage, rank, micro_batch = original(shape)
    return stage, rank, micro_batch[:, ::-1]
