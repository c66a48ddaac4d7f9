"""MultiConv: groups of convolutions have the values of convolutions, and settings that must fit."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Sequence, Tuple

import pytest

from ipu_conformance import check

from ..exact import assert_same
from ..ir.dumped import assert_counts, read
from ..lazily import poptorch, torch
from ..on_device import as_model, infer


def _convolution(seed: int) -> Any:
    """A convolution with whole numbers, so that sums are exact in any order."""
    layer = torch.nn.Conv2d(2, 3, 3)
    with torch.no_grad():
        for number, weight in enumerate(layer.parameters()):
            values = torch.arange(weight.numel(), dtype=torch.float32) * (5 + seed) + number
            weight.copy_((values % 7 - 3).reshape(weight.shape))
    return layer


def _x() -> Any:
    return (torch.arange(50, dtype=torch.float32) % 9 - 4).reshape(1, 2, 5, 5)


SETTINGS = (
    ("availableMemoryProportions", "0.5"),
    ("availableMemoryProportions", "(0.25, 0.75)"),
    ("availableMemoryProportions", "[1.0, 0.0]"),
    ("partialsTypes", "torch.half"),
    ("partialsTypes", "[torch.half, torch.float]"),
    ("planType", "poptorch.MultiConvPlanType.Parallel"),
    ("planType", "poptorch.MultiConvPlanType.Serial"),
    ("perConvReservedTiles", "120"),
    ("cycleBackOff", "0.1"),
    ("enableConvDithering", "True"),
    ("enableConvDithering", "[True, False]"),
)


@pytest.mark.parametrize(("name", "value"), SETTINGS)
def test_settings_chain_and_change_no_value(name: str, value: str) -> None:
    """Every setting returns the group; whole numbers this small are the same under all of them."""
    group, first, second = poptorch.MultiConv(), _convolution(1), _convolution(2)

    def forward(model: Any, x: Any) -> Any:
        with group:
            a, b = model.first(x), model.second(x * 2)
        return a + b

    chained = getattr(group, name)(eval(value, {"torch": torch, "poptorch": poptorch}))
    check.holds(chained is group, f"{name}({value}) does not return its group.")
    actual = infer(poptorch, forward, _x(), first=first, second=second)
    assert_same(actual, first(_x()) + second(_x() * 2), "the sum of the convolutions")


REFUSED: Dict[str, Tuple[str, Callable[[], Sequence[Any]], Callable[[Any, Any], Any]]] = {
    "three-proportions": (
        "availableMemoryProportions", lambda: [poptorch.MultiConv().availableMemoryProportions((0.1, 0.2, 0.3))],
        lambda model, x: model.first(x) + model.second(x)),
    "one-dithering": (
        "enableConvDithering", lambda: [poptorch.MultiConv().enableConvDithering([True])],
        lambda model, x: model.first(x) + model.second(x)),
    "a-group-in-a-group": (
        "MultiConv", lambda: [poptorch.MultiConv(), poptorch.MultiConv()], lambda model, x: model.first(x)),
    "nothing": ("MultiConv", lambda: [poptorch.MultiConv()], lambda model, x: x),
    "addition": ("MultiConv", lambda: [poptorch.MultiConv()], lambda model, x: x + 1),
}  # fmt: skip
"""What the error names, the groups that are opened, and what is computed inside."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.emulator] * (name in ("nothing", "addition"))) for name in REFUSED],
)
def test_a_group_holds_convolutions_that_fit_it(name: str) -> None:
    """Refused are lists of another length than the number of convolutions, groups in a group, and empty groups."""
    match, groups, inside = REFUSED[name]

    def forward(model: Any, x: Any) -> Any:
        with contextlib.ExitStack() as opened:
            for group in groups():
                opened.enter_context(group)
            x = inside(model, x)
        return x.sum() * model.third(_x())

    with check.raises(poptorch.Error, match=match, what=f"a group of {name}"):
        infer(poptorch, forward, _x(), first=_convolution(1), second=_convolution(2), third=_convolution(3))


def test_a_group_does_nothing_on_the_host() -> None:
    """Outside the device the convolutions run as they are, and what goes wrong inside is raised."""
    layer = _convolution(3)
    expected = layer(_x())
    with poptorch.MultiConv().planType(poptorch.MultiConvPlanType.Serial):
        actual = layer(_x())

    assert_same(actual, expected, "the result on the host")
    with check.raises(KeyError, match="lost", what="a KeyError in a group"), poptorch.MultiConv():
        raise KeyError("lost")


def test_a_group_is_one_op() -> None:
    """Its inputs are data and weights of the convolutions in pairs, its outputs their results."""

    def forward(model: Any, x: Any) -> Any:
        with poptorch.MultiConv():
            a, b, c = model.first(x), model.second(x), model.third(x * 2)
        return a + b - c

    layers = {name: _convolution(number) for number, name in enumerate(("first", "second", "third"))}
    net = as_model(forward, **layers)
    model = poptorch.inferenceModel(net)
    assert_same(model(_x()), net(_x()), "the sum of the convolutions")
    graph = read(model)
    groups = [op for op in graph.ops if op.type == "MultiConv"]

    actual = [(len(op.inputs), len(op.outputs)) for op in groups]
    check.equal(actual=actual, expected=[(6, 3)], what="the numbers of inputs and outputs of each MultiConv")
    expected = ["first.weight", "second.weight", "third.weight"]
    check.equal(actual=list(groups[0].inputs[1::2]), expected=expected, what="the weights of the MultiConv")
    assert_counts(graph, Conv=0)


def test_a_group_has_one_gradient_of_each_kind() -> None:
    """One op makes the gradients of all data, one those of all weights."""

    def forward(model: Any, x: Any) -> Any:
        y = model.before(x)
        with poptorch.MultiConv():
            a, b = model.first(y), model.second(y)
        return poptorch.identity_loss((a + b).abs(), "sum")

    layers = {"before": torch.nn.Conv2d(2, 2, 1), "first": _convolution(1), "second": _convolution(2)}
    model = poptorch.trainingModel(as_model(forward, **layers))
    model.compile(_x())

    types = sorted(op.type for op in read(model).ops if op.type.startswith("MultiConv"))
    expected = ["MultiConv", "MultiConvDataGrad", "MultiConvWeightsGrad"]
    check.equal(actual=types, expected=expected, what="the list of ops of the group")
