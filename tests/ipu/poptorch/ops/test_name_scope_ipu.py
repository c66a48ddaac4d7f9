"""NameScope and Attribute: what operations are called, and what they carry to the backend."""

from __future__ import annotations

import json
from typing import Any, List

import pytest

from .on_device import as_model


def _operations(poptorch: Any, forward: Any, **parts: Any) -> List[Any]:
    """The operations of the compiled model that have these types, as the IR shows them."""
    import torch

    inference = poptorch.inferenceModel(as_model(forward, **parts))
    inference.compile(torch.ones(1, 2))
    return list(json.loads(inference._debugGetPopartIR())["maingraph"])


def _names(operations: List[Any], kind: str) -> List[str]:
    return [operation["name"] for operation in operations if operation["type"] == kind]


def test_a_scope_comes_before_the_name(poptorch: Any) -> None:
    """Operations inside carry the scope, those outside do not."""

    def forward(model: Any, x: Any) -> Any:
        with poptorch.NameScope("doubling"):
            x = x * 2
        return x + 1

    operations = _operations(poptorch, forward)

    assert all("doubling" in name for name in _names(operations, "Mul"))
    assert _names(operations, "Mul")
    assert not any("doubling" in name for name in _names(operations, "Add"))
    assert _names(operations, "Add")


def test_scopes_nest(poptorch: Any) -> None:
    """An inner scope comes behind the outer one, joined by a slash; after it, the outer one goes on."""

    def forward(model: Any, x: Any) -> Any:
        with poptorch.NameScope("outer"):
            with poptorch.NameScope("inner"):
                x = x * 2
            return x + 1

    operations = _operations(poptorch, forward)

    assert all("outer/inner" in name for name in _names(operations, "Mul"))
    assert all("outer" in name and "inner" not in name for name in _names(operations, "Add"))
    assert _names(operations, "Mul")
    assert _names(operations, "Add")


def test_a_scope_does_not_end_a_block(poptorch: Any, torch: Any) -> None:
    """A block that begins inside a scope goes on after it."""

    def forward(model: Any, x: Any) -> Any:
        with poptorch.NameScope("scope"):
            poptorch.Block.start("block", ipu_id=0)
            x = x * 2
        return x + 1

    strategy = poptorch.ShardedExecution(poptorch.Stage("block").ipu(1))
    made = poptorch.Options().setExecutionStrategy(strategy)
    inference = poptorch.inferenceModel(as_model(forward), made)
    inference.compile(torch.ones(1, 2))
    operations = json.loads(inference._debugGetPopartIR())["maingraph"]
    placed = {
        operation["type"]: operation["attributes"]["__ipu_number"]
        for operation in operations
        if operation["type"] in ("Mul", "Add")
    }

    assert placed == {"Mul": "1", "Add": "1"}


def test_a_scope_changes_no_value(poptorch: Any, torch: Any) -> None:
    """On the device and on the host a scope only names."""

    def forward(model: Any, x: Any) -> Any:
        with poptorch.NameScope("scope"), poptorch.Attribute(priority=3):
            return x * 2

    x = torch.tensor([[1.0, -2.0]])

    assert (poptorch.inferenceModel(as_model(forward))(x) == x * 2).all()
    assert (forward(None, x) == x * 2).all()


@pytest.mark.parametrize("wrong", [3, None, b"scope"], ids=repr)
def test_a_scope_is_a_string(poptorch: Any, wrong: Any) -> None:
    """Any other name is refused."""
    with pytest.raises(AssertionError):
        poptorch.NameScope(wrong)


def test_an_attribute_reaches_the_operation(poptorch: Any) -> None:
    """Operations inside carry the attribute, the innermost value of it; those outside do not."""

    def forward(model: Any, x: Any) -> Any:
        with poptorch.Attribute(flavour="sweet"):
            x = x * 2
            with poptorch.Attribute(flavour="sour", number=5):
                x = x - 1
        return x + 1

    carried = {
        operation["type"]: {
            name: value for name, value in operation["attributes"].items() if name in ("flavour", "number")
        }
        for operation in _operations(poptorch, forward)
        if operation["type"] in ("Mul", "Sub", "Add")
    }

    assert carried == {"Mul": {"flavour": "sweet"}, "Sub": {"flavour": "sour", "number": "5"}, "Add": {}}


@pytest.mark.parametrize("wrong", [object(), {"a": 1}, [1, "a"], [[1]]], ids=["object", "dict", "mixed", "nested"])
def test_an_attribute_is_plain(poptorch: Any, wrong: Any) -> None:
    """Values that the backend cannot hold are refused."""
    with pytest.raises((ValueError, poptorch.Error, AssertionError)):
        poptorch.Attribute(flavour=wrong)
