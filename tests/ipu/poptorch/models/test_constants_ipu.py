"""Constants that forward writes down: they are part of the program."""

from __future__ import annotations

from typing import Any

import pytest

from ..exact import assert_same
from ..on_device import as_model, infer


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_a_tensor_written_in_forward_is_computed_with(poptorch: Any, torch: Any, training: bool) -> None:
    """torch.tensor inside forward gives the device the values that are written there."""

    def forward(model: Any, x: Any) -> Any:
        y = x * torch.tensor([1.0, 10.0, 100.0]) * model.scale
        return y, poptorch.identity_loss(y, reduction="sum")

    wrap = poptorch.trainingModel if training else poptorch.inferenceModel
    model = wrap(as_model(forward, scale=torch.nn.Parameter(torch.tensor(2.0))))

    assert_same(model(torch.tensor([[1.0, 2.0, 3.0]]))[0], torch.tensor([[2.0, 40.0, 600.0]]), "the output")


def test_a_constant_reaches_every_stage(poptorch: Any, torch: Any) -> None:
    """A constant that blocks on two IPUs read has its value on both."""

    def forward(model: Any, x: Any) -> Any:
        constant = torch.tensor([1.0, 2.0])
        with poptorch.Block("one", ipu_id=0):
            x = x + constant
        with poptorch.Block("two", ipu_id=1):
            return x * constant

    x, options = torch.tensor([[1.0, 1.0], [3.0, 3.0]]), poptorch.Options().deviceIterations(2)

    assert_same(infer(poptorch, forward, x, options=options), torch.tensor([[2.0, 6.0], [4.0, 10.0]]), "the output")


def test_a_constant_is_an_index(poptorch: Any, torch: Any) -> None:
    """A constant of integers selects columns."""
    out = infer(poptorch, lambda model, x: x.index_select(1, torch.tensor([2, 0])), torch.tensor([[1.0, 2.0, 3.0]]))

    assert_same(out, torch.tensor([[3.0, 1.0]]), "the selected columns")


def test_a_tensor_that_is_no_buffer_is_a_constant(poptorch: Any, torch: Any) -> None:
    """A tensor that a model merely holds keeps on the device the value that it had when it was moved there."""
    model = as_model(lambda model, x: x * model.held.to("ipu"), held=torch.tensor([2.0, 3.0]))
    inference = poptorch.inferenceModel(model)
    inference.compile(torch.ones(1, 2))
    model.held = torch.tensor([5.0, 7.0])

    assert_same(inference(torch.ones(1, 2)), torch.tensor([[2.0, 3.0]]), "the output")


def test_a_held_tensor_that_forward_changes_begins_again(poptorch: Any, torch: Any) -> None:
    """A call changes a tensor that a model merely holds for itself: the next one begins with what was compiled."""

    def forward(model: Any, x: Any) -> Any:
        held = model.held.to("ipu")
        held += x
        model.held = held
        return held * 1.0

    inference = poptorch.inferenceModel(as_model(forward, held=torch.tensor([2.0, 3.0])))

    for call in range(3):
        assert_same(inference(torch.ones(2)), torch.tensor([3.0, 4.0]), f"the output of call {call}")


def test_a_model_may_return_constants_alone(poptorch: Any, torch: Any) -> None:
    """What forward makes without its input comes back."""
    ones, halves = infer(poptorch, lambda model, x: (torch.ones(3), torch.full((2,), 0.5)), torch.zeros(2))

    assert_same(ones, torch.ones(3), "the first output")
    assert_same(halves, torch.tensor([0.5, 0.5]), "the second output")
