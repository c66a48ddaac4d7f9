"""for_loop and cond: control flow on the device, for inference."""

from __future__ import annotations

from typing import Any

import pytest

from ipu_conformance import check

from ..exact import assert_same
from ..lazily import torch
from ..on_device import as_model, gradient, infer


def _x() -> Any:
    return torch.tensor([[1.0, -2.0, 3.0]])


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_loop_runs_its_body_that_often(poptorch: Any, count: int) -> None:
    """Each iteration begins with what the one before returned."""
    (out,) = infer(poptorch, lambda model, x: poptorch.for_loop(count, lambda a: a * 2, [x]), _x())

    assert_same(out, _x() * 2**count, f"the result of {count} iterations")


def test_a_loop_carries_several_tensors(poptorch: Any, torch: Any) -> None:
    """Fibonacci numbers, with the body's results in the order of its arguments."""

    def forward(model: Any, a: Any, b: Any) -> Any:
        return poptorch.for_loop(6, lambda a, b: [b, a + b], [a, b])

    results = infer(poptorch, forward, torch.tensor([[0]]), torch.tensor([[1]]))

    check.equal(actual=[each.item() for each in results], expected=[8, 13], what="the list of the loop's results")


@pytest.mark.parametrize("name", ["for_loop", "cond"])
def test_a_body_works_on_copies_of_its_inputs(poptorch: Any, torch: Any, name: str) -> None:
    """What a body writes into its arguments changes neither an input of the model nor what was computed before."""

    def written(a: Any, b: Any) -> Any:
        a += 5
        b.mul_(3)
        return a, b

    def forward(model: Any, x: Any) -> Any:
        outer = x * 2
        if name == "for_loop":
            return [*poptorch.for_loop(2, written, [x, outer]), x, outer]
        return [*poptorch.cond((x.sum() > 0), written, [x, outer], written, [x, outer]), x, outer]

    rounds = 2 if name == "for_loop" else 1
    results = infer(poptorch, forward, _x())

    expected = [_x() + 5 * rounds, _x() * 2 * 3**rounds, _x(), _x() * 2]
    for actual, value, what in zip(results, expected, ("the sum", "the product", "the input", "the outer tensor")):
        assert_same(actual, value, what)


def test_a_body_uses_weights_and_outer_tensors(poptorch: Any, torch: Any) -> None:
    """The body sees the model and what was computed before the loop."""

    def forward(model: Any, x: Any) -> Any:
        outer = x + 1
        return poptorch.for_loop(3, lambda a: a * model.weight + outer, [x])[0]

    weight = torch.tensor([2.0, 1.0, -1.0])
    expected = _x()
    for _ in range(3):
        expected = expected * weight + _x() + 1

    assert_same(infer(poptorch, forward, _x(), weight=torch.nn.Parameter(weight)), expected, "the result")


def test_loops_nest(poptorch: Any) -> None:
    """A loop inside a loop runs for every iteration of the outer one."""

    def outer(a: Any) -> Any:
        return poptorch.for_loop(2, lambda b: b + 1, [a * 2])

    out = infer(poptorch, lambda model, x: poptorch.for_loop(3, outer, [x])[0], _x())

    assert_same(out, ((_x() * 2 + 2) * 2 + 2) * 2 + 2, "the result")


def test_a_loop_runs_on_the_host_too(poptorch: Any) -> None:
    """Outside the device it is a plain loop."""
    (out,) = poptorch.for_loop(3, lambda a: a + 1, [_x()])

    assert_same(out, _x() + 3, "the result on the host")


def test_a_loop_does_not_train(poptorch: Any, torch: Any) -> None:
    """A training model refuses a loop."""

    def forward(model: Any, x: Any) -> Any:
        return poptorch.identity_loss(poptorch.for_loop(2, lambda a: a * model.weight, [x])[0], "sum")

    with check.raises(poptorch.Error, match="for_loop", what="a training model with a loop"):
        gradient(poptorch, forward, torch.ones(3), _x())


@pytest.mark.parametrize("count", [1.5, "3", None, -1], ids=repr)
def test_the_count_is_an_integer_constant(poptorch: Any, count: Any) -> None:
    """Other counts are refused."""
    with check.raises((poptorch.Error, ValueError), match="count", what=f"a loop with the count {count!r}"):
        infer(poptorch, lambda model, x: poptorch.for_loop(count, lambda a: a, [x]), _x())


@pytest.mark.parametrize(
    "inputs", [lambda x: x, lambda x: (x,), lambda x: [x, 3]], ids=["a tensor alone", "a tuple", "a number"]
)
def test_the_inputs_are_a_list(poptorch: Any, inputs: Any) -> None:
    """Inputs that are not a list of tensors are refused."""
    with check.raises((poptorch.Error, ValueError), match="inputs", what="inputs that are no list of tensors"):
        infer(poptorch, lambda model, x: poptorch.for_loop(2, lambda *a: list(a), inputs(x)), _x())


BODIES = {
    "another shape": lambda a: a[:, :2],
    "another type": lambda a: a.half(),
    "more": lambda a: [a, a],
    "nothing": lambda a: None,
}
"""What a body may not return."""


@pytest.mark.parametrize("body", BODIES)
def test_a_body_returns_what_it_takes(poptorch: Any, body: str) -> None:
    """Results of other shapes, types or number than the inputs are refused."""
    with check.raises(poptorch.Error, match="for_loop", what=f"a body that returns {body}"):
        infer(poptorch, lambda model, x: poptorch.for_loop(2, BODIES[body], [x]), _x())


def _choose(poptorch: Any) -> Any:
    return lambda model, flag, x: poptorch.cond(flag, lambda a: [a * 2, a + 10], [x], lambda a: [a - 1, a * a], [x + 1])


@pytest.mark.parametrize("flag", [True, False])
def test_a_condition_chooses_a_body(poptorch: Any, torch: Any, flag: bool) -> None:
    """The results are those of one body on its own inputs, on the device and on the host."""
    condition, expected = torch.tensor([flag]), ((_x() * 2, _x() + 10) if flag else (_x(), (_x() + 1) ** 2))

    for results in (infer(poptorch, _choose(poptorch), condition, _x()), _choose(poptorch)(None, condition, _x())):
        check.equal(actual=len(results), expected=2, what="the number of results")
        for number, (result, value) in enumerate(zip(results, expected)):
            assert_same(result, value, f"result {number} when the condition is {flag}")


def test_one_compiled_condition_serves_both_values(poptorch: Any, torch: Any) -> None:
    """The condition is a value of the device, not a constant of the compiled model."""
    model = as_model(lambda model, flag, x: _choose(poptorch)(model, flag, x)[0])
    inference = poptorch.inferenceModel(model)

    for flag in (True, False, True):
        out = inference(torch.tensor([flag]), _x())
        assert_same(out, _x() * 2 if flag else _x(), f"the result when the condition is {flag}")


def test_micro_batches_choose_for_themselves(poptorch: Any, torch: Any) -> None:
    """Each device iteration takes its own branch."""

    def forward(model: Any, flag: Any, x: Any) -> Any:
        return poptorch.cond(flag, lambda a: a * 2, [x], lambda a: a + 1, [x])[0]

    flags, x = torch.tensor([True, False, False]), torch.tensor([[4.0], [5.0], [6.0]])
    out = infer(poptorch, forward, flags, x, options=poptorch.Options().deviceIterations(3))

    check.equal(actual=out.flatten().tolist(), expected=[8.0, 6.0, 7.0], what="the result by device iteration")


@pytest.mark.parametrize("flag", [True, False])
def test_only_the_chosen_body_has_effects(poptorch: Any, torch: Any, capfd: Any, flag: bool) -> None:
    """A print and a host call in the other body do not happen, also in a condition inside."""
    calls = []

    def noted(x: Any) -> Any:
        calls.append(x.clone())
        return x + 1

    def forward(model: Any, flag: Any, x: Any) -> Any:
        def inner(a: Any) -> Any:
            return poptorch.cond(flag, lambda b: poptorch.ipu_print_tensor(b, "yes-yes"), [a], lambda b: b, [a])

        return poptorch.cond(flag, inner, [x], lambda a: poptorch.ipu_print_tensor(model.host(a), "no"), [x])[0]

    inference = poptorch.inferenceModel(as_model(forward, host=poptorch.CPU(noted, "noted")))
    inference.compile(torch.tensor([flag]), _x())
    calls.clear()
    capfd.readouterr()
    out = inference(torch.tensor([flag]), _x())
    printed = "".join(capfd.readouterr())

    assert_same(out, _x() if flag else _x() + 1, "the output")
    effects = {"yes-yes": "yes-yes" in printed, "no": "no:" in printed, "calls": len(calls)}
    expected = {"yes-yes": flag, "no": not flag, "calls": 0 if flag else 1}
    check.equal(actual=effects, expected=expected, what=f"the record of effects when the condition is {flag}")


def test_a_condition_does_not_train(poptorch: Any, torch: Any) -> None:
    """A training model refuses a condition."""

    def forward(model: Any, flag: Any, x: Any) -> Any:
        chosen = poptorch.cond(flag, lambda a: a * model.weight, [x], lambda a: a, [x])
        return poptorch.identity_loss(chosen[0], "sum")

    with check.raises(poptorch.Error, match="cond", what="a training model with a condition"):
        gradient(poptorch, forward, torch.ones(3), torch.tensor([True]), _x())


@pytest.mark.parametrize("body", ["another shape", "another type", "more"])
def test_both_bodies_return_the_same_kind(poptorch: Any, torch: Any, body: str) -> None:
    """Bodies with results of different shapes, types or number are refused."""

    def forward(model: Any, flag: Any, x: Any) -> Any:
        return poptorch.cond(flag, lambda a: a, [x], BODIES[body], [x])

    with check.raises(poptorch.Error, match="cond", what=f"a body that returns {body}"):
        infer(poptorch, forward, torch.tensor([True]), _x())


def test_a_condition_is_one_element(poptorch: Any) -> None:
    """A condition of several elements is refused."""
    with check.raises((poptorch.Error, ValueError), match="condition", what="a condition of three elements"):
        infer(poptorch, lambda model, x: poptorch.cond(x > 0, lambda a: a, [x], lambda a: a, [x]), _x())
