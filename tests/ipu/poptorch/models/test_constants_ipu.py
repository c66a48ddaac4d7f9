"""Constants that forward writes down: they are part of the program."""

from __future__ import annotations

from typing import Any

import pytest

from ..ops.on_device import as_model


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_a_tensor_written_in_forward_is_computed_with(poptorch: Any, torch: Any, training: bool) -> None:
    """torch.tensor inside forward gives the device the values that are written there."""

    class Weighted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor(2.0))

        def forward(self, x: Any) -> Any:
            y = x * torch.tensor([1.0, 10.0, 100.0]) * self.scale
            return (y, poptorch.identity_loss(y, reduction="sum")) if training else y

    wrap = poptorch.trainingModel if training else poptorch.inferenceModel
    made = wrap(Weighted())(torch.tensor([[1.0, 2.0, 3.0]]))

    assert (made[0] if training else made).tolist() == [[2.0, 40.0, 600.0]]


def test_a_constant_reaches_every_stage(poptorch: Any, torch: Any) -> None:
    """A constant that blocks on two IPUs read has its value on both."""

    def forward(model: Any, x: Any) -> Any:
        constant = torch.tensor([1.0, 2.0])
        with poptorch.Block("one", ipu_id=0):
            x = x + constant
        with poptorch.Block("two", ipu_id=1):
            return x * constant

    model = poptorch.inferenceModel(as_model(forward), poptorch.Options().deviceIterations(2))

    assert model(torch.tensor([[1.0, 1.0], [3.0, 3.0]])).tolist() == [[2.0, 6.0], [4.0, 10.0]]


def test_a_constant_is_an_index(poptorch: Any, torch: Any) -> None:
    """A constant of integers selects columns."""
    model = poptorch.inferenceModel(as_model(lambda model, x: x.index_select(1, torch.tensor([2, 0]))))

    assert model(torch.tensor([[1.0, 2.0, 3.0]])).tolist() == [[3.0, 1.0]]


def test_a_tensor_that_is_no_buffer_is_a_constant(poptorch: Any, torch: Any) -> None:
    """A tensor that a model merely holds has the value that it had when the model was compiled."""
    held = torch.tensor([2.0, 3.0])
    model = poptorch.inferenceModel(as_model(lambda model, x: x * model.held, held=held))

    assert model(torch.ones(1, 2)).tolist() == [[2.0, 3.0]]
