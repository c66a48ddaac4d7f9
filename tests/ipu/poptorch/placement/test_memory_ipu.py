"""What fits on an IPU: a model is refused when it is compiled if it must hold more than the IPU has."""

from __future__ import annotations

from typing import Any

import pytest

from ipu_conformance import check

from ..on_device import as_model

CAPACITY = {1: 1216 * 256 * 1024, 2: 1472 * 624 * 1024}
"""The bytes of an IPU by the first digit of its version: tiles by what a tile has, from the vendor's data sheets."""
STAGES = 3
DEPTH = 2 * STAGES - 1
"""How many micro-batches the first of the stages keeps for its backward pass: those that have not come back."""
KEPT = 24
"""How many large tensors a micro-batch keeps for its backward pass; with so many, others hardly count."""
TOO_MUCH = 1.1


def compiles(poptorch: Any, share: float, stages: int) -> bool:
    """Compile a training in which what one micro-batch keeps is a share of an IPU; nothing large is ever computed."""
    import torch

    # What stands in for hardware that is not there has the IPUs of the second generation.
    version = poptorch.ipuHardwareVersion() if poptorch.ipuHardwareIsAvailable() else 2
    size = int(share * CAPACITY[int(str(version)[0])] / (4 * KEPT))

    def forward(model: Any, x: Any) -> Any:
        poptorch.Block.start("large", ipu_id=0)
        values = model.weight * torch.ones(size)
        for _ in range(KEPT):
            values = torch.tanh(values)
        y = values.sum() * x
        for stage in range(1, stages):
            poptorch.Block.start(f"small {stage}", ipu_id=stage)
            y = y * model.scale
        return poptorch.identity_loss(y, reduction="sum")

    model = as_model(forward, weight=torch.nn.Parameter(torch.ones(1)), scale=torch.nn.Parameter(torch.ones(1)))
    options = poptorch.Options().autoRoundNumIPUs(True)
    options.Training.gradientAccumulation(DEPTH)
    trainer = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.5))
    try:
        trainer.compile(torch.ones(DEPTH))
        return bool(trainer.isCompiled())
    finally:
        trainer.destroy()


@pytest.mark.ipus(4)
@pytest.mark.parametrize(
    ("share", "stages"), [(TOO_MUCH, 1), (TOO_MUCH / DEPTH, STAGES)], ids=["one-stage", "pipelined"]
)
def test_what_does_not_fit_is_refused(poptorch: Any, share: float, stages: int) -> None:
    """A tenth more than an IPU has does not fit, be it of one micro-batch or of all that are under way."""
    with check.raises(poptorch.Error, match="(?i)out.of.memory", what="compiling a model that is too large"):
        compiles(poptorch, share, stages)


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("share", "stages"), [(0.3, 1), (0.3 / DEPTH, STAGES)], ids=["one-stage", "pipelined"])
def test_what_fits_is_compiled(poptorch: Any, share: float, stages: int) -> None:
    """What takes less than a third of an IPU compiles."""
    check.holds(compiles(poptorch, share, stages), "a model that takes a third of an IPU is not compiled.")
