"""MultiConv: groups of convolutions have the values of convolutions, and settings that must fit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ipu_conformance import check

from ..exact import assert_same
from ..lazily import torch
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


def _assert_convolves(poptorch: Any, group: Any) -> None:
    """Two convolutions in a group have on the device the values that they have on the host."""
    __tracebackhide__ = True
    first, second = _convolution(1), _convolution(2)

    def forward(model: Any, x: Any) -> Any:
        with group:
            a, b = model.first(x), model.second(x * 2)
        return a + b

    actual = infer(poptorch, forward, _x(), first=first, second=second)
    assert_same(actual, first(_x()) + second(_x() * 2), "the sum of the convolutions")


def test_a_group_computes_what_its_convolutions_do(poptorch: Any) -> None:
    """A group without settings changes no value."""
    _assert_convolves(poptorch, poptorch.MultiConv())


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
def test_settings_chain_and_change_no_value(poptorch: Any, torch: Any, name: str, value: str) -> None:
    """Every setting returns the group; whole numbers this small are the same under all of them."""
    group = poptorch.MultiConv()
    setting = eval(value, {"torch": torch, "poptorch": poptorch})

    check.holds(getattr(group, name)(setting) is group, f"{name}({value}) does not return its group.")
    _assert_convolves(poptorch, group)


WRONG = (
    ("availableMemoryProportions", "1"),
    ("availableMemoryProportions", "[0.5, 'half']"),
    ("partialsTypes", "torch.int32"),
    ("planType", "'Parallel'"),
    ("perConvReservedTiles", "1.5"),
    ("cycleBackOff", "'0.1'"),
    ("cycleBackOff", "1"),
    ("enableConvDithering", "1"),
)


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_wrong_settings_are_refused(poptorch: Any, torch: Any, name: str, value: str) -> None:
    """A value of the wrong type is refused at once."""
    with check.raises((AssertionError, ValueError), what=f"{name}({value})"):
        getattr(poptorch.MultiConv(), name)(eval(value, {"torch": torch}))


@pytest.mark.parametrize(
    ("name", "value"), [("availableMemoryProportions", (0.1, 0.2, 0.3)), ("enableConvDithering", [True])]
)
def test_there_is_one_value_for_each_convolution(poptorch: Any, name: str, value: Any) -> None:
    """A list of another length than the number of convolutions in the group is refused."""
    group = poptorch.MultiConv()
    getattr(group, name)(value)

    with check.raises(poptorch.Error, match=name, what=f"{name}({value}) for two convolutions"):
        _assert_convolves(poptorch, group)


def test_a_group_does_not_hold_a_group(poptorch: Any) -> None:
    """A group that is opened inside another is refused."""

    def forward(model: Any, x: Any) -> Any:
        with poptorch.MultiConv(), poptorch.MultiConv():
            return model.layer(x)

    with check.raises(poptorch.Error, match="MultiConv", what="a group in a group"):
        infer(poptorch, forward, _x(), layer=_convolution(1))


def test_a_group_does_nothing_on_the_host(poptorch: Any) -> None:
    """Outside the device the convolutions run as they are, and what goes wrong inside is raised."""
    layer = _convolution(3)
    expected = layer(_x())
    with poptorch.MultiConv().planType(poptorch.MultiConvPlanType.Serial):
        actual = layer(_x())

    assert_same(actual, expected, "the result on the host")
    with check.raises(KeyError, match="lost", what="a KeyError in a group"), poptorch.MultiConv():
        raise KeyError("lost")


def _ops(model: Any) -> Any:
    return json.loads(model._debugGetPopartIR())["maingraph"]


def test_a_group_is_one_op(poptorch: Any) -> None:
    """Its inputs are data and weights of the convolutions in pairs, its outputs their results."""

    def forward(model: Any, x: Any) -> Any:
        with poptorch.MultiConv():
            a, b, c = model.first(x), model.second(x), model.third(x * 2)
        return a + b - c

    layers = {name: _convolution(number) for number, name in enumerate(("first", "second", "third"))}
    model = poptorch.inferenceModel(as_model(forward, **layers))
    model(_x())
    groups = [op for op in _ops(model) if op["type"] == "MultiConv"]

    actual = [(len(op["inputs"]), len(op["outputs"])) for op in groups]
    check.equal(actual=actual, expected=[(6, 3)], what="the numbers of inputs and outputs of each MultiConv")
    weights = [tensor["name"] for tensor in groups[0]["inputs"][1::2]]
    expected = ["first.weight", "second.weight", "third.weight"]
    check.equal(actual=weights, expected=expected, what="the weights of the MultiConv")
    check.lacks(actual=[op["type"] for op in _ops(model)], unexpected="Conv", what="the list of types of ops")


def test_a_group_has_one_gradient_of_each_kind(poptorch: Any) -> None:
    """One op makes the gradients of all data, one those of all weights."""

    def forward(model: Any, x: Any) -> Any:
        y = model.before(x)
        with poptorch.MultiConv():
            a, b = model.first(y), model.second(y)
        return poptorch.identity_loss((a + b).abs(), "sum")

    layers = {"before": torch.nn.Conv2d(2, 2, 1), "first": _convolution(1), "second": _convolution(2)}
    model = poptorch.trainingModel(as_model(forward, **layers))
    model(_x())
    types = [op["type"] for op in _ops(model) if op["type"].startswith("MultiConv")]

    check.equal(actual=sorted(types), expected=["MultiConv", "MultiConvDataGrad", "MultiConvWeightsGrad"],
                what="the list of ops of the group")  # fmt: skip


@pytest.mark.emulator
@pytest.mark.parametrize("inside", ["nothing", "addition"])
def test_a_group_holds_a_convolution(poptorch: Any, inside: str) -> None:
    """A group without a convolution is refused."""

    def forward(model: Any, x: Any) -> Any:
        with poptorch.MultiConv():
            x = x + 1 if inside == "addition" else x
        return model.layer(x)

    with check.raises(poptorch.Error, match="MultiConv", what=f"a group with {inside} inside"):
        infer(poptorch, forward, _x(), layer=_convolution(1))
