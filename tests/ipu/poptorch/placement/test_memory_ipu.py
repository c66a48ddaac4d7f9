"""What fits on an IPU: a model is refused when it is compiled if it must hold more than the IPU has."""

from __future__ import annotations

from typing import Any

import pytest

from ipu_conformance import check

from ..lazily import poptorch, torch
from ..on_device import as_model

CAPACITY = {1: 1216 * 256 * 1024, 2: 1472 * 624 * 1024}
"""The bytes of an IPU by the first digit of its version: tiles by what a tile has, from the vendor's data sheets."""
KEPT = 24
"""How many large tensors a micro-batch keeps for its backward pass; with so many, others hardly count."""
TOO_MUCH = 1.1


def compile_stages(*shares: float, recompute: bool = False, accumulation: int = 1) -> None:
    """Compile a training in which what one micro-batch keeps in each stage is a share of its IPU.

    It accumulates as often as the pipeline needs at least. Nothing large is ever computed.
    """
    # What stands in for hardware that is not there has the IPUs of the second generation.
    version = poptorch.ipuHardwareVersion() if poptorch.ipuHardwareIsAvailable() else 2
    capacity = CAPACITY[int(str(version)[0])]
    depth = max(accumulation, 2 * len(shares) - 1)

    def forward(model: Any, x: Any) -> Any:
        y = x
        for stage, share in enumerate(shares):
            poptorch.Block.start(f"stage {stage}", ipu_id=stage)
            if share:
                values = model.weights[stage] * torch.ones(int(share * capacity / (4 * KEPT)))
                for _ in range(KEPT):
                    values = torch.tanh(values)
                y = values.sum() * y
            else:
                y = y * model.weights[stage]
        return poptorch.identity_loss(y, reduction="sum")

    weights = torch.nn.ParameterList(torch.nn.Parameter(torch.ones(1)) for _ in shares)
    model = as_model(forward, weights=weights)
    options = poptorch.Options().autoRoundNumIPUs(True)
    options.Training.gradientAccumulation(depth)
    if recompute:
        options._Popart.set("autoRecomputation", 3)
    trainer = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.5))
    try:
        trainer.compile(torch.ones(depth))
        check.holds(trainer.isCompiled(), "a model that was compiled says that it is not.")
    finally:
        trainer.destroy()


TOO_LARGE = {
    "one-stage": (TOO_MUCH,),
    "pipelined": (TOO_MUCH / 5, 0.0, 0.0),
    "second-stage": (0.0, TOO_MUCH / 3, 0.0),
    "third-stage": (0.0, 0.0, TOO_MUCH),
}
"""What a micro-batch keeps in each stage: the last of three stages keeps one, those before it three and five."""
SMALL = {
    "one-stage": (0.3,),
    "pipelined": (0.3 / 5, 0.0, 0.0),
    # Together they take more than one IPU has.
    "five-stages": (0.3 / 9, 0.3 / 7, 0.3 / 5, 0.3 / 3, 0.3),
}


@pytest.mark.ipus(4)
@pytest.mark.parametrize("shares", TOO_LARGE)
def test_what_does_not_fit_is_refused(shares: str) -> None:
    """A tenth more than an IPU has does not fit, be it of one micro-batch or of all that are under way in a stage."""
    with check.raises(poptorch.Error, match="(?i)out.of.memory", what=f"compiling what is too large for {shares}"):
        compile_stages(*TOO_LARGE[shares])


@pytest.mark.parametrize(
    "shares", [pytest.param(name, marks=pytest.mark.ipus(8 if len(row) > 4 else 4)) for name, row in SMALL.items()]
)
def test_what_fits_is_compiled(shares: str) -> None:
    """What takes less than a third of each IPU compiles."""
    with check.accepted(f"compiling what fits on {shares}"):
        compile_stages(*SMALL[shares])


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("shares", "accumulation"), [("one-stage", 7), ("pipelined", 17)])
def test_accumulation_takes_no_more_memory(shares: str, accumulation: int) -> None:
    """What a micro-batch keeps is free after its backward pass, however many follow."""
    with check.accepted(f"compiling what fits on {shares} with {accumulation} micro-batches"):
        compile_stages(*SMALL[shares], accumulation=accumulation)


@pytest.mark.ipus(4)
def test_a_recomputed_stage_keeps_what_it_is_handed() -> None:
    """Recomputed, a stage fits that is too large when everything is kept for all micro-batches under way."""
    with check.accepted("compiling a large stage that is recomputed"):
        compile_stages(*TOO_LARGE["pipelined"], recompute=True)
