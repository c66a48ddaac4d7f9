"""poptorch.CPU: a function of the host in the middle of a model, for inference."""

from __future__ import annotations

from typing import Any, List

import pytest

from ipu_conformance import check

from ..exact import assert_same
from ..lazily import torch
from ..on_device import as_model, gradient, infer


def _x(rows: int = 1) -> Any:
    return torch.arange(rows * 3, dtype=torch.float32).reshape(rows, 3) - 2


def test_the_host_computes_in_the_middle(poptorch: Any, torch: Any) -> None:
    """What the device computed goes to the host and what the host computed goes back."""

    def on_host(x: Any) -> Any:
        return torch.from_numpy(x.numpy() ** 2)

    out = infer(poptorch, lambda model, x: model.host(x + 1) * 2, _x(), host=poptorch.CPU(on_host, "square"))

    assert_same(out, (_x() + 1) ** 2 * 2, "the output")


def test_an_operation_may_be_made_inside_forward(poptorch: Any) -> None:
    """The device keeps the function of the host, as long as it runs, whoever else forgets it."""
    model = poptorch.inferenceModel(as_model(lambda model, x: poptorch.CPU(lambda a: a * 3, "thrice")(x) + 1))

    for step in range(3):
        assert_same(model(_x() + step), (_x() + step) * 3 + 1, f"the output of run {step}")


def test_several_tensors_go_and_come(poptorch: Any) -> None:
    """A function may take and return several tensors, of other shapes than it was given."""

    def on_host(a: Any, b: Any) -> Any:
        return a.sum(1), (a - b)[:, :2]

    host = poptorch.CPU(on_host, "several")
    first, second = infer(poptorch, lambda model, x: tuple(model.host(x, x * 2)), _x(2), host=host)

    assert_same(first, _x(2).sum(1), "the first result of the host")
    assert_same(second, -_x(2)[:, :2], "the second result of the host")


@pytest.mark.parametrize(("iterations", "replicas"), [(3, 1), (1, 2), (3, 2)])
def test_the_function_is_called_for_every_micro_batch(poptorch: Any, iterations: int, replicas: int) -> None:
    """It sees each micro-batch of each replica once, with its values."""
    seen: List[float] = []

    def on_host(x: Any) -> Any:
        seen.append(float(x[0, 0]))
        return x

    x = _x(iterations * replicas)
    model = as_model(lambda model, x: model.host(x) + 1, host=poptorch.CPU(on_host, "noted"))
    options = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas)
    inference = poptorch.inferenceModel(model, options)
    inference.compile(x)
    seen.clear()
    output = inference(x)

    check.micro_batches_once(seen=seen, expected=x[:, 0].tolist(), what="the function")
    assert_same(output, x + 1, "the output")


def test_the_function_sees_its_state_of_the_moment(poptorch: Any) -> None:
    """It is called at run time: what it reads may change between two runs."""
    state = {"add": 0.0}
    model = as_model(lambda model, x: model.host(x), host=poptorch.CPU(lambda x: x + state["add"], "state"))
    inference = poptorch.inferenceModel(model)

    for add in (1.0, 5.0, 3.0):
        state["add"] = add
        assert_same(inference(_x()), _x() + add, f"the output when the host adds {add}")


def test_one_function_may_be_called_twice(poptorch: Any) -> None:
    """Each call in the model is an operation of its own."""
    host = poptorch.CPU(lambda x: x * 3, "triple")
    out = infer(poptorch, lambda model, x: model.host(model.host(x) + 1), _x(), host=host)

    assert_same(out, _x() * 9 + 3, "the output")


def test_a_module_may_run_on_the_host(poptorch: Any, torch: Any) -> None:
    """A layer with weights works too."""
    layer = torch.nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 2.0, 0.5], [0.0, -1.0, 4.0]]))
        layer.bias.copy_(torch.tensor([0.25, -8.0]))

    out = infer(poptorch, lambda model, x: model.host(x), _x(), host=poptorch.CPU(layer, "layer"))

    assert_same(out, layer(_x()), "the output")


@pytest.mark.ipus(2)
def test_the_host_computes_between_two_ipus(poptorch: Any) -> None:
    """In a pipeline the call belongs to the block that it is written in."""
    host = poptorch.CPU(lambda x: x * 3, "between")

    def forward(model: Any, x: Any) -> Any:
        x = model.host(x + 1)
        poptorch.Block.start(ipu_id=1)
        return x * 2

    out = infer(poptorch, forward, _x(4), host=host, options=poptorch.Options().deviceIterations(4))

    assert_same(out, (_x(4) + 1) * 6, "the output")


def test_on_the_host_it_is_the_function(poptorch: Any) -> None:
    """Outside the device the function is called."""
    assert_same(poptorch.CPU(lambda x: x * 3, "host")(_x()), _x() * 3, "the result on the host")


def test_the_host_does_not_train(poptorch: Any, torch: Any) -> None:
    """A training model refuses a call of the host."""
    host = poptorch.CPU(lambda x: x * 3, "training")

    def loss(model: Any, x: Any) -> Any:
        return poptorch.identity_loss(host(x) * model.weight, "sum")

    with check.raises(poptorch.Error, match="CPU", what="a training model that calls the host"):
        gradient(poptorch, loss, torch.ones(3), _x())


def test_a_host_call_needs_a_function_and_a_name(poptorch: Any) -> None:
    """The first argument is called, the second is a name."""
    for wrong in ((3, "name"), (abs, 5), (abs, "")):
        with check.raises((poptorch.Error, AssertionError), what=f"CPU{wrong}"):
            poptorch.CPU(*wrong)


def test_a_function_returns_tensors(poptorch: Any) -> None:
    """A function that returns something else is refused, by its name."""
    with check.raises(poptorch.Error, match="wrong-result", what="a host function that returns a number"):
        infer(poptorch, lambda model, x: model.host(x), _x(), host=poptorch.CPU(lambda x: 3, "wrong-result"))
