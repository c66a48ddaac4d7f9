"""Tensors of the host inside forward: the host computes with them, and the device only with what was moved to it."""

from __future__ import annotations

from typing import Any, Callable, Dict

import pytest

from ipu_conformance import check

from ..exact import assert_same
from ..on_device import as_model, infer

MIXED: Dict[str, Callable[[Any, Any, Any], Any]] = {
    "sum": lambda torch, x, held: x + held,
    "product": lambda torch, x, held: torch.matmul(held, x),
    "list": lambda torch, x, held: torch.cat([x, held]),
    "keyword": lambda torch, x, held: torch.add(x, other=held),
    "index": lambda torch, x, held: x[held.long()],
}


@pytest.mark.parametrize("call", MIXED)
def test_a_tensor_of_the_host_is_not_computed_with(poptorch: Any, torch: Any, call: str) -> None:
    """A tensor that is no input, no parameter and no buffer is on the host: beside one of the device it is refused."""
    held = torch.tensor([0.0, 1.0])

    with check.raises(poptorch.Error, match="Expected an IPU tensor", what=f"a {call} with a tensor of the host"):
        infer(poptorch, lambda model, x: MIXED[call](torch, x, held), torch.ones(2))


def by_name(x: Any, held: Any) -> Any:
    """Moved by the name of the device."""
    return x * held.to("ipu")


def by_keyword(x: Any, held: Any) -> Any:
    """Moved by keyword, to where another tensor is."""
    return x * held.to(device=x.device)


def by_copying(x: Any, held: Any) -> Any:
    """Copied into a tensor of the device."""
    return x * (x * 0).copy_(held)


@pytest.mark.parametrize("move", [by_name, by_keyword, by_copying], ids=lambda move: move.__name__)
def test_a_tensor_that_is_moved_is_a_constant(poptorch: Any, torch: Any, move: Callable[[Any, Any], Any]) -> None:
    """It keeps on the device the values that it had when the model was compiled."""
    held = torch.tensor([2.0, 3.0])
    inference = poptorch.inferenceModel(as_model(lambda model, x: move(x, held)))
    inference.compile(torch.ones(2))
    if move is not by_copying:
        held.fill_(7.0)

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


def test_tensors_know_where_they_are(poptorch: Any, torch: Any) -> None:
    """Inside forward inputs, weights and results are on an IPU, and what forward made is too; outside they are not."""

    def forward(model: Any, x: Any) -> Any:
        places = [tensor.device.type for tensor in (x, model.weight, torch.ones(2))]
        check.equal(actual=places, expected=["ipu"] * 3, what="the devices of an input, a weight and a new tensor")
        result = x * model.weight
        check.equal(actual=result.device.type, expected="ipu", what="the device of a result")
        return result

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
