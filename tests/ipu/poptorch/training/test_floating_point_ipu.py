"""Options.Precision: exceptions, stochastic rounding and partial sums on the device."""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple

import pytest

from ipu_conformance import check

from ..lazily import poptorch, torch
from ..on_device import as_model, infer

STEP = 2.0**-10
"""The distance of float16 values between 1 and 2."""


def precision(poptorch: Any, method: str, value: Any, seed: int = 11) -> Any:
    """Options with one setting of Options.Precision."""
    options = poptorch.Options().randomSeed(seed)
    getattr(options.Precision, method)(value)
    return options


def quotient(model: Any, x: Any, y: Any) -> Any:
    return x / y


def total(model: Any, x: Any, y: Any) -> Any:
    return x + y


def product(model: Any, x: Any, y: Any) -> Any:
    return x * y


TRAPS = {"division": (1.0, 0.0), "overflow": (3e38, 1e-5), "invalid": (0.0, 0.0)}


@pytest.mark.parametrize("trap", TRAPS)
def test_a_floating_point_exception_stops_the_run(poptorch: Any, torch: Any, trap: str) -> None:
    """With exceptions enabled, a division by zero, an overflow or an invalid operation is an Error."""
    inputs = [torch.full((2,), value) for value in TRAPS[trap]]

    with check.raises(poptorch.Error, match="", what=trap):
        infer(poptorch, quotient, *inputs, options=precision(poptorch, "enableFloatingPointExceptions", True))


def test_an_exception_of_the_backward_pass_stops_the_run(poptorch: Any, torch: Any) -> None:
    """A root of zero is sound, and its slope is a division by zero: training stops where inference does not."""

    def forward(model: Any, x: Any) -> Any:
        return poptorch.identity_loss((x * model.weight).sqrt(), reduction="sum")

    weight = torch.nn.Parameter(torch.zeros(2))
    options = precision(poptorch, "enableFloatingPointExceptions", True)
    loss = infer(poptorch, forward, torch.ones(1, 2), options=options, weight=weight)
    check.equal(actual=float(loss), expected=0.0, what="the sum of two roots of zero")
    model = as_model(forward, weight=weight)
    trainer = poptorch.trainingModel(model, options.clone(), torch.optim.SGD(model.parameters(), lr=0.5))
    with check.raises(poptorch.Error, match="", what="the slope of a root of zero"):
        trainer(torch.ones(1, 2))


def test_without_exceptions_the_run_goes_on(poptorch: Any, torch: Any) -> None:
    """Exceptions are off by default: a division by zero gives an infinity."""
    out = infer(poptorch, quotient, torch.ones(2), torch.zeros(2))

    check.equal(actual=out.tolist(), expected=[float("inf")] * 2, what="one by zero")


def test_exceptions_leave_sound_runs_alone(poptorch: Any, torch: Any) -> None:
    """With exceptions enabled, a run without any gives what it gives without them."""
    layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Softmax(dim=1))
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    trapped, plain = (
        infer(poptorch, lambda model, x: model.layers(x), x, options=options, layers=layers)
        for options in (precision(poptorch, "enableFloatingPointExceptions", True), None)
    )

    check.identical(actual=trapped, expected=plain, what="the output with exceptions")


class Between(NamedTuple):
    """An operation on two float16 numbers whose result is a quarter of the way from one float16 value to the next."""

    compute: Callable[..., Any]
    left: float
    right: float
    below: float
    above: float


SMALLEST = 2.0**-24
"""The smallest float16 number, and the distance of those below 2 ** -14."""
SUM = Between(total, 1.0, STEP / 4, 1.0, 1.0 + STEP)
BETWEEN = {
    "negative": Between(total, -1.0, -STEP / 4, -1.0, -1.0 - STEP),
    "subnormal": Between(product, 2.0**-13, 13 * 2.0**-13, 3 * SMALLEST, 4 * SMALLEST),
    "smallest": Between(product, 2.0**-13, 2.0**-13, 0.0, SMALLEST),
}


def _check_rounding(poptorch: Any, torch: Any, case: Between, enabled: bool) -> None:
    """Of 4096 elements about a quarter go up; five standard deviations are missed less than once in a million seeds."""
    __tracebackhide__ = True
    count = 4096
    inputs = (torch.full((count,), value).half() for value in (case.left, case.right))
    out = infer(poptorch, case.compute, *inputs, options=precision(poptorch, "enableStochasticRounding", enabled))
    up = int((out == case.above).sum())

    check.equal(actual=out.dtype, expected=torch.float16, what="the type of the result")
    check.equal(actual=set(out.tolist()) - {case.below, case.above}, expected=set(), what="what is no neighbour")
    if enabled:
        spread = 5 * (count * 0.25 * 0.75) ** 0.5
        check.holds(abs(up - count / 4) < spread, f"{up} of {count} went up, expected {count / 4:g} +- {spread:.3g}")
    else:
        check.equal(actual=up, expected=0, what="the number of results that went up")


@pytest.mark.parametrize("enabled", [True, False])
def test_stochastic_rounding_reaches_both_neighbours(poptorch: Any, torch: Any, enabled: bool) -> None:
    """A float16 sum a quarter of a step above a value is rounded to both neighbours, and to the nearest by default."""
    _check_rounding(poptorch, torch, SUM, enabled)


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("name", BETWEEN)
def test_stochastic_rounding_keeps_the_mean_of_any_number(poptorch: Any, torch: Any, name: str, enabled: bool) -> None:
    """Numbers below zero, and those that float16 holds with fewer bits, are rounded to both neighbours, too.

    The mean of rounded values is the value, says the documentation of ``enableStochasticRounding``.
    """
    _check_rounding(poptorch, torch, BETWEEN[name], enabled)


def test_stochastic_rounding_follows_the_seed(poptorch: Any, torch: Any) -> None:
    """The same seed rounds alike, another seed does not."""
    inputs = torch.ones(256).half(), torch.full((256,), STEP / 2).half()
    first, again, other = (
        infer(poptorch, total, *inputs, options=precision(poptorch, "enableStochasticRounding", True, seed))
        for seed in (1, 1, 2)
    )

    check.identical(actual=again, expected=first, what="the sum of the same seed")
    check.differs(actual=other.numpy(), other=first.numpy(), what="the sum of another seed")


def test_partial_sums_in_float16_lose_low_bits(poptorch: Any, torch: Any) -> None:
    """With float16 partials, not by default, a long sum of small terms falls short by more than its last rounding.

    From 2048 on float16 values are 2 apart and more: a block of terms that sums to less than half the distance is lost.
    """
    terms, half = 4096, 16.0  # half the distance of float16 values from 32768 on
    left, right = torch.ones(1, terms).half(), torch.full((terms, 1), 0.5).half()
    left[0, 0], right[0, 0] = 32768.0, 1.0
    exact = 32768.0 + 0.5 * (terms - 1)
    wide, narrow = (
        infer(poptorch, lambda model, x, y: x @ y, left, right, options=options).item()
        for options in (None, precision(poptorch, "setPartialsType", torch.half))
    )

    check.holds(abs(wide - exact) <= half, f"with float32 partials the sum is {wide}, {exact} is exact")
    check.holds(abs(narrow - exact) > half, f"with float16 partials the sum is {narrow}, as exact as with float32's")


TERMS, START = 4096, 32768.0
PRODUCTS: Mapping[str, Callable[..., Any]] = {
    "bmm": lambda x, y: torch.bmm(x[None], y[None]).sum(0),
    "addmm": lambda x, y: torch.addmm(torch.zeros(1, 1).half(), x, y),
    "linear": lambda x, y: torch.nn.functional.linear(x, y.t()),
    "biased": lambda x, y: torch.nn.functional.linear(x, y.t(), torch.zeros(1).half()),
    "einsum": lambda x, y: torch.einsum("ij,jk->ik", x, y),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_every_product_has_partial_sums_in_float16(name: str) -> None:
    """The setting is one of all matrix products: each loses terms that are half a step of float16 and less."""
    left, right = torch.ones(1, TERMS).half(), torch.full((TERMS, 1), 0.5).half()
    left[0, 0], right[0, 0] = START, 1.0
    exact = START + 0.5 * (TERMS - 1)
    wide, narrow = (
        infer(poptorch, lambda model, x, y: PRODUCTS[name](x, y), left, right, options=options).item()
        for options in (None, precision(poptorch, "setPartialsType", torch.half))
    )

    check.holds(abs(wide - exact) <= 16, f"with float32 partials the {name} is {wide}, {exact} is exact")
    check.holds(abs(narrow - exact) > 16, f"with float16 partials the {name} is {narrow}, as exact as with float32's")
