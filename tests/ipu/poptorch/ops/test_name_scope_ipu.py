"""NameScope and Attribute: what operations are called, and what they carry to the backend."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List

import pytest

from ipu_conformance import check

from ..exact import assert_same
from ..lazily import torch
from ..on_device import as_model, infer


def _operations(poptorch: Any, forward: Any, options: Any = None) -> List[Any]:
    """The operations of the compiled model, as the IR shows them."""
    inference = poptorch.inferenceModel(as_model(forward), options)
    inference.compile(torch.ones(1, 2))
    return list(json.loads(inference._debugGetPopartIR())["maingraph"])


def _attributes(operations: List[Any], *wanted: str) -> Dict[str, Dict[str, Any]]:
    """Those of the wanted attributes that the arithmetic carries, by type."""
    return {
        operation["type"]: {name: value for name, value in operation["attributes"].items() if name in wanted}
        for operation in operations
        if operation["type"] in ("Mul", "Sub", "Add")
    }


def _names(operations: List[Any], kind: str) -> List[str]:
    return [operation["name"] for operation in operations if operation["type"] == kind]


def test_a_scope_comes_before_the_name(poptorch: Any) -> None:
    """Operations inside carry the scope and the scopes around it, joined by slashes; those outside do not."""

    def forward(model: Any, x: Any) -> Any:
        with poptorch.NameScope("outer"):
            with poptorch.NameScope("inner"):
                x = x * 2
            x = x - 3
        return x + 1

    operations = _operations(poptorch, forward)

    for kind, scope in {"Mul": "outer/inner/", "Sub": "outer/", "Add": ""}.items():
        scopes = {"".join(re.findall("outer/|inner/", name)) for name in _names(operations, kind)}
        check.equal(actual=scopes, expected={scope}, what=f"the set of the scopes in the names of {kind}")


def test_a_scope_does_not_end_a_block(poptorch: Any) -> None:
    """A block that begins inside a scope goes on after it."""

    def forward(model: Any, x: Any) -> Any:
        with poptorch.NameScope("scope"):
            poptorch.Block.start("block", ipu_id=0)
            x = x * 2
        return x + 1

    strategy = poptorch.ShardedExecution(poptorch.Stage("block").ipu(1))
    operations = _operations(poptorch, forward, poptorch.Options().setExecutionStrategy(strategy))

    expected = {kind: {"__ipu_number": "1"} for kind in ("Mul", "Add")}
    check.equal(actual=_attributes(operations, "__ipu_number"), expected=expected, what="the IPU by type of operation")


def test_a_scope_changes_no_value(poptorch: Any, torch: Any) -> None:
    """On the device and on the host a scope only names."""

    def forward(model: Any, x: Any) -> Any:
        with poptorch.NameScope("scope"), poptorch.Attribute(priority=3):
            return x * 2

    x = torch.tensor([[1.0, -2.0]])

    assert_same(infer(poptorch, forward, x), x * 2, "the result on the device")
    assert_same(forward(None, x), x * 2, "the result on the host")


@pytest.mark.parametrize("wrong", [3, None, b"scope"], ids=repr)
def test_a_scope_is_a_string(poptorch: Any, wrong: Any) -> None:
    """Any other name is refused."""
    with check.raises(AssertionError, what=f"NameScope({wrong!r})"):
        poptorch.NameScope(wrong)


def test_an_attribute_reaches_the_operation(poptorch: Any) -> None:
    """Operations inside carry the attribute, the innermost value of it; those outside do not."""

    def forward(model: Any, x: Any) -> Any:
        with poptorch.Attribute(flavour="sweet"):
            x = x * 2
            with poptorch.Attribute(flavour="sour", number=5):
                x = x - 1
        return x + 1

    carried = _attributes(_operations(poptorch, forward), "flavour", "number")

    expected = {"Mul": {"flavour": "sweet"}, "Sub": {"flavour": "sour", "number": "5"}, "Add": {}}
    check.equal(actual=carried, expected=expected, what="the table of attributes by type of operation")


@pytest.mark.parametrize("wrong", [object(), [1, "a"], [[1]]], ids=["object", "mixed", "nested"])
def test_an_attribute_is_plain(poptorch: Any, wrong: Any) -> None:
    """Values that the backend cannot hold are refused."""
    with check.raises((ValueError, poptorch.Error, AssertionError), what=f"Attribute(flavour={wrong!r})"):
        poptorch.Attribute(flavour=wrong)
