"""What fits on an IPU: a model is refused when it is compiled if it must hold more than the IPU has."""

from __future__ import annotations

from typing import Any

import pytest

from ipu_conformance import check

from ..lazily import torch
from ..on_device import as_model

CAPACITY = {1: 1216 * 256 * 1024, 2: 1472 * 624 * 1024}
"""The bytes of an IPU by the first digit of its version: tiles by what a tile has, from the vendor's data sheets."""
STAGES = 3
DEPTH = 2 * STAGES - 1
"""How many micro-batches the first of the stages keeps for its backward pass: those that have not come back."""
KEPT = 24
"""How many large tensors a micro-batch keeps for its backward pass; with so many, others hardly count."""
TOO_MUCH = 1.1


def compile_stages(poptorch: Any, *shares: float) -> None:
    """Compile a training in which what one micro-batch keeps in each stage is a share of its IPU.

    Nothing large is ever computed.
    """
    # What stands in for hardware that is not there has the IPUs of the second generation.
    version = poptorch.ipuHardwareVersion() if poptorch.ipuHardwareIsAvailable() else 2
    capacity = CAPACITY[int(str(version)[0])]
    depth = 2 * len(shares) - 1

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
    trainer = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.5))
    try:
        trainer.compile(torch.ones(depth))
        check.holds(trainer.isCompiled(), "a model that was compiled says that it is not.")
    finally:
        trainer.destroy()


def assert_fits(poptorch: Any, *shares: float) -> None:
    """Compiling stages that take these shares of their IPUs raises nothing."""
    __tracebackhide__ = True
    problem = ""
    try:
        compile_stages(poptorch, *shares)
    except poptorch.Error as error:
        problem = str(error)
    check.equal(actual=problem, expected="", what=f"the error of compiling {len(shares)} stages that fit")


@pytest.mark.ipus(4)
@pytest.mark.parametrize(
    ("share", "stages"), [(TOO_MUCH, 1), (TOO_MUCH / DEPTH, STAGES)], ids=["one-stage", "pipelined"]
)
def test_what_does_not_fit_is_refused(poptorch: Any, share: float, stages: int) -> None:
    """A tenth more than an IPU has does not fit, be it of one micro-batch or of all that are under way."""
    with check.raises(poptorch.Error, match="(?i)out.of.memory", what="compiling a model that is too large"):
        compile_stages(poptorch, share, *[0.0] * (stages - 1))


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("share", "stages"), [(0.3, 1), (0.3 / DEPTH, STAGES)], ids=["one-stage", "pipelined"])
def test_what_fits_is_compiled(poptorch: Any, share: float, stages: int) -> None:
    """What takes less than a third of an IPU compiles."""
    assert_fits(poptorch, share, *[0.0] * (stages - 1))


def under_way(stage: int, stages: int = STAGES) -> int:
    """How many micro-batches a stage keeps for its backward pass."""
    return 2 * (stages - stage) - 1


@pytest.mark.ipus(4)
@pytest.mark.parametrize("stage", [1, 2])
def test_every_ipu_of_a_pipeline_is_looked_at(poptorch: Any, stage: int) -> None:
    """A tenth more than an IPU has does not fit in a later stage either."""
    shares = [TOO_MUCH / under_way(stage) if number == stage else 0.0 for number in range(STAGES)]

    with check.raises(poptorch.Error, match="(?i)out.of.memory", what=f"compiling too large a stage {stage}"):
        compile_stages(poptorch, *shares)


@pytest.mark.ipus(8)
def test_every_ipu_has_memory_of_its_own(poptorch: Any) -> None:
    """Five stages that take less than a third of an IPU each compile, though together they take more than one has."""
    assert_fits(poptorch, *(0.3 / under_way(stage, 5) for stage in range(5)))
