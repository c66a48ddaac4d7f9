"""for_loop and cond: control flow on the device, for inference."""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

import pytest

from ipu_conformance import check

from ..exact import assert_same
from ..lazily import poptorch, torch
from ..on_device import as_model, infer


def _x() -> Any:
    return torch.tensor([[1.0, -2.0, 3.0]])


def _assert_results(actual: Any, expected: Any, when: str) -> None:
    __tracebackhide__ = True
    check.equal(actual=len(actual), expected=len(expected), what="the number of results")
    for number, (result, value) in enumerate(zip(actual, expected)):
        assert_same(result, value, f"result {number} {when}")


def _twice_and_two_more(a: Any) -> Any:
    return poptorch.for_loop(2, lambda b: b + 1, [a * 2])


def _with_outer_tensors(model: Any, x: Any) -> Any:
    outer = x + 1
    return poptorch.for_loop(3, lambda a: a * model.weight + outer, [x])


LOOPS: Dict[str, Tuple[Callable[[Any, Any], Any], Callable[[Any], Any]]] = {
    "1": (lambda model, x: poptorch.for_loop(1, lambda a: a * 2, [x]), lambda x: [x * 2]),
    "2": (lambda model, x: poptorch.for_loop(2, lambda a: a * 2, [x]), lambda x: [x * 4]),
    "7": (lambda model, x: poptorch.for_loop(7, lambda a: a * 2, [x]), lambda x: [x * 128]),
    "fibonacci": (
        lambda model, x: poptorch.for_loop(6, lambda a, b: [b, a + b], [x.int() * 0, x.int()]),
        lambda x: [x.int() * 8, x.int() * 13]),
    "nested": (lambda model, x: poptorch.for_loop(3, _twice_and_two_more, [x]), lambda x: [x * 8 + 14]),
    "weights-and-outer-tensors": (
        _with_outer_tensors, lambda x: [x * torch.tensor([15.0, 4.0, 0.0]) + torch.tensor([7.0, 3.0, 1.0])]),
}  # fmt: skip
"""Loops, and what they make of ``x`` with the weight (2, 1, -1)."""


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_runs_its_body_that_often(name: str) -> None:
    """Each iteration begins with what the one before returned, on the device and on the host."""
    loop, expected = LOOPS[name]
    weight = torch.nn.Parameter(torch.tensor([2.0, 1.0, -1.0]))

    for results in (infer(poptorch, loop, _x(), weight=weight), loop(as_model(loop, weight=weight), _x())):
        _assert_results(results, expected(_x()), f"of the loop {name}")


@pytest.mark.parametrize("name", ["for_loop", "cond"])
def test_a_body_works_on_copies_of_its_inputs(name: str) -> None:
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


def _choose(model: Any, flag: Any, x: Any) -> Any:
    return poptorch.cond(flag, lambda a: [a * 2, a + 10], [x], lambda a: [a - 1, a * a], [x + 1])


@pytest.mark.parametrize("flag", [True, False])
def test_a_condition_chooses_a_body(flag: bool) -> None:
    """The results are those of one body on its own inputs, on the device and on the host."""
    condition, expected = torch.tensor([flag]), ((_x() * 2, _x() + 10) if flag else (_x(), (_x() + 1) ** 2))

    for results in (infer(poptorch, _choose, condition, _x()), _choose(None, condition, _x())):
        _assert_results(results, expected, f"when the condition is {flag}")


def test_one_compiled_condition_serves_both_values() -> None:
    """The condition is a value of the device, not a constant of the compiled model."""
    inference = poptorch.inferenceModel(as_model(_choose))

    for flag in (True, False, True):
        expected = _x() * 2 if flag else _x()
        assert_same(inference(torch.tensor([flag]), _x())[0], expected, f"the result when the condition is {flag}")


def test_micro_batches_choose_for_themselves() -> None:
    """Each device iteration takes its own branch."""

    def forward(model: Any, flag: Any, x: Any) -> Any:
        return poptorch.cond(flag, lambda a: a * 2, [x], lambda a: a + 1, [x])[0]

    flags, x = torch.tensor([True, False, False]), torch.tensor([[4.0], [5.0], [6.0]])
    out = infer(poptorch, forward, flags, x, options=poptorch.Options().deviceIterations(3))

    check.equal(actual=out.flatten().tolist(), expected=[8.0, 6.0, 7.0], what="the result by device iteration")


@pytest.mark.parametrize("flag", [True, False])
def test_only_the_chosen_body_has_effects(capfd: Any, flag: bool) -> None:
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
