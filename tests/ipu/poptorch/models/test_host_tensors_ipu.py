"""Tensors of the host inside forward: the device computes with constants that forward writes and with what is moved."""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

import pytest

from ipu_conformance import check

from ..exact import assert_same
from ..lazily import poptorch, torch
from ..on_device import as_model, infer

MIXED: Dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda x, held: x + held,
    "product": lambda x, held: torch.matmul(held, x),
    "list": lambda x, held: torch.cat([x, held]),
    "keyword": lambda x, held: torch.add(x, other=held),
    "index": lambda x, held: x[held.long()],
}


@pytest.mark.parametrize("call", MIXED)
def test_a_tensor_of_the_host_is_not_computed_with(poptorch: Any, torch: Any, call: str) -> None:
    """A tensor that is no input, no parameter and no buffer is on the host: beside one of the device it is refused."""
    held = torch.tensor([0.0, 1.0])

    with check.raises(poptorch.Error, match="Expected an IPU tensor", what=f"a {call} with a tensor of the host"):
        infer(poptorch, lambda model, x: MIXED[call](x, held), torch.ones(2))


MOVES: Dict[str, Callable[[Any, Any], Any]] = {
    "by_name": lambda x, held: x * held.to("ipu"),
    "by_keyword": lambda x, held: x * held.to(device=x.device),
    "by_copying": lambda x, held: x * (x * 0).copy_(held),
}


@pytest.mark.parametrize("move", MOVES)
def test_a_tensor_that_is_moved_is_a_constant(poptorch: Any, torch: Any, move: str) -> None:
    """It keeps on the device the values that it had when the model was compiled, also where the model holds it."""
    model = as_model(lambda model, x: MOVES[move](x, model.held), held=torch.tensor([2.0, 3.0]))
    inference = poptorch.inferenceModel(model)
    inference.compile(torch.ones(2))
    if move != "by_copying":
        model.held.fill_(7.0)

    assert_same(inference(torch.ones(2)), torch.tensor([2.0, 3.0]), "the output")


def test_the_host_computes_while_compiling(poptorch: Any, torch: Any) -> None:
    """What forward does to tensors of the host happens once, when it is compiled, however often the model runs."""
    held = torch.zeros(3)

    def forward(model: Any, x: Any) -> Any:
        held.add_(1.0)
        return x + (held * 2).to("ipu")

    inference = poptorch.inferenceModel(as_model(forward))
    outputs = [inference(torch.zeros(3)).tolist() for _ in range(3)]

    check.equal(actual=outputs, expected=[[2.0] * 3] * 3, what="the outputs of three calls")
    check.equal(actual=held.tolist(), expected=[1.0] * 3, what="the tensor of the host")


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


def test_tensors_know_where_they_are(poptorch: Any, torch: Any) -> None:
    """Inside forward inputs, weights and results are on an IPU, and what forward made is too; outside they are not."""

    def forward(model: Any, x: Any) -> Any:
        places = [tensor.device.type for tensor in (x, model.weight, torch.ones(2), x * model.weight)]
        check.equal(
            actual=places, expected=["ipu"] * 4, what="the devices of an input, a weight, a new tensor, a result"
        )
        return x * model.weight

    model = as_model(forward, weight=torch.nn.Parameter(torch.ones(2)))
    poptorch.inferenceModel(model)(torch.ones(2))

    check.equal(actual=model.weight.device.type, expected="cpu", what="the device of the weight outside")


def test_an_output_of_the_host_comes_back_with_a_warning(poptorch: Any, torch: Any, said: Callable[[], str]) -> None:
    """A tensor that never was on the device is returned as it is, once, however many micro-batches there are."""
    held = torch.tensor([4.0, 5.0])
    options = poptorch.Options().deviceIterations(3)

    _, constant = infer(poptorch, lambda model, x: (x + 1, held), torch.ones(6), options=options)

    assert_same(constant, held, "the tensor of the host")
    check.contains(actual=said(), expected="expected to be on the IPU", what="what is said of the output")


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_a_tensor_written_in_forward_is_computed_with(poptorch: Any, torch: Any, training: bool) -> None:
    """torch.tensor inside forward gives the device the values that are written there."""

    def forward(model: Any, x: Any) -> Any:
        y = x * torch.tensor([1.0, 10.0, 100.0]) * model.scale
        return y, poptorch.identity_loss(y, reduction="sum")

    wrap = poptorch.trainingModel if training else poptorch.inferenceModel
    model = wrap(as_model(forward, scale=torch.nn.Parameter(torch.tensor(2.0))))

    assert_same(model(torch.tensor([[1.0, 2.0, 3.0]]))[0], torch.tensor([[2.0, 40.0, 600.0]]), "the output")


def _on_two_ipus(model: Any, x: Any) -> Any:
    constant = torch.tensor([1.0, 2.0, 4.0])
    with poptorch.Block("one", ipu_id=0):
        x = x + constant
    with poptorch.Block("two", ipu_id=1):
        return x * constant


CONSTANTS: Dict[str, Tuple[Callable[[Any, Any], Any], Any]] = {
    "every stage": (_on_two_ipus, [[2.0, 8.0, 28.0], [4.0, 10.0, 24.0]]),
    "index": (lambda model, x: x.index_select(1, torch.tensor([2, 0])), [[3.0, 1.0], [2.0, 3.0]]),
    "alone": (lambda model, x: torch.full((1, 2), 0.5), [[0.5, 0.5], [0.5, 0.5]]),
}
"""What forward does with constants, and its output for the micro-batches 1, 2, 3 and 3, 3, 2."""


@pytest.mark.parametrize("use", CONSTANTS)
def test_a_constant_is_where_it_is_used(poptorch: Any, torch: Any, use: str) -> None:
    """Blocks on two IPUs read a constant, whole numbers select columns, and a model may return constants alone."""
    x, options = torch.tensor([[1.0, 2.0, 3.0], [3.0, 3.0, 2.0]]), poptorch.Options().deviceIterations(2)
    forward, expected = CONSTANTS[use]

    assert_same(infer(poptorch, forward, x, options=options), torch.tensor(expected), "the output")
