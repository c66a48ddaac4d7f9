"""poptorch.CPU: a function of the host in the middle of a model, for inference."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import pytest

from ipu_conformance import check

from ..exact import assert_same
from ..lazily import poptorch, torch
from ..on_device import as_model, infer


def _x(rows: int = 1) -> Any:
    return torch.arange(rows * 3, dtype=torch.float32).reshape(rows, 3) - 2


CALLS: Dict[str, Tuple[Callable[..., Any], Callable[[Any, Any], Any], Callable[[Any], Any]]] = {
    "once": (
        lambda a: torch.from_numpy(a.numpy() ** 2), lambda host, x: [host(x + 1) * 2], lambda x: [(x + 1) ** 2 * 2]),
    "twice": (lambda a: a * 3, lambda host, x: [host(host(x) + 1)], lambda x: [x * 9 + 3]),
    "with-several-tensors": (
        lambda a, b: (a.sum(1), (a - b)[:, :2]), lambda host, x: host(x, x * 2), lambda x: [x.sum(1), -x[:, :2]]),
}  # fmt: skip
"""What the host does, how a model calls it, and the results."""


@pytest.mark.parametrize("name", CALLS)
def test_the_host_computes_in_the_middle(name: str) -> None:
    """What the device computed goes to the host and comes back; outside the device the function is called."""
    on_host, forward, expected = CALLS[name]
    host = poptorch.CPU(on_host, "function")

    for results in (infer(poptorch, lambda model, x: tuple(forward(host, x)), _x(2)), forward(host, _x(2))):
        check.equal(actual=len(results), expected=len(expected(_x(2))), what="the number of results")
        for result, value in zip(results, expected(_x(2))):
            assert_same(result, value, f"a result of the host, called {name}")


def test_an_operation_may_be_made_inside_forward() -> None:
    """The device keeps the function of the host, as long as it runs, whoever else forgets it."""
    model = poptorch.inferenceModel(as_model(lambda model, x: poptorch.CPU(lambda a: a * 3, "thrice")(x) + 1))

    for step in range(3):
        assert_same(model(_x() + step), (_x() + step) * 3 + 1, f"the output of run {step}")


@pytest.mark.parametrize(("iterations", "replicas"), [(3, 1), (1, 2), (3, 2)])
def test_the_function_is_called_for_every_micro_batch(iterations: int, replicas: int) -> None:
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


def test_the_function_sees_its_state_of_the_moment() -> None:
    """It is called at run time: what it reads may change between two runs."""
    state = {"add": 0.0}
    model = as_model(lambda model, x: model.host(x), host=poptorch.CPU(lambda x: x + state["add"], "state"))
    inference = poptorch.inferenceModel(model)

    for add in (1.0, 5.0, 3.0):
        state["add"] = add
        assert_same(inference(_x()), _x() + add, f"the output when the host adds {add}")


def test_a_module_may_run_on_the_host() -> None:
    """A layer with weights works too."""
    layer = torch.nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 2.0, 0.5], [0.0, -1.0, 4.0]]))
        layer.bias.copy_(torch.tensor([0.25, -8.0]))

    out = infer(poptorch, lambda model, x: model.host(x), _x(), host=poptorch.CPU(layer, "layer"))

    assert_same(out, layer(_x()), "the output")


@pytest.mark.ipus(2)
def test_the_host_computes_between_two_ipus() -> None:
    """In a pipeline the call belongs to the block that it is written in."""
    host = poptorch.CPU(lambda x: x * 3, "between")

    def forward(model: Any, x: Any) -> Any:
        x = model.host(x + 1)
        poptorch.Block.start(ipu_id=1)
        return x * 2

    out = infer(poptorch, forward, _x(4), host=host, options=poptorch.Options().deviceIterations(4))

    assert_same(out, (_x(4) + 1) * 6, "the output")
