"""NameScope and Attribute: what operations are called, and what they carry to the backend."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from ipu_conformance import check

from ..exact import assert_same
from ..ir.dumped import inference_graph
from ..lazily import poptorch, torch
from ..on_device import as_model, infer


def test_a_scope_comes_before_the_name() -> None:
    """Operations inside carry the scope and the scopes around it, joined by slashes; those outside do not."""

    def forward(model: Any, x: Any) -> Any:
        with poptorch.NameScope("outer"):
            with poptorch.NameScope("inner"):
                x = x * 2
            x = x - 3
        return x + 1

    graph = inference_graph(poptorch, as_model(forward), torch.ones(1, 2))

    for kind, scope in {"Mul": "outer/inner/", "Sub": "outer/", "Add": ""}.items():
        scopes = {"".join(re.findall("outer/|inner/", op.name)) for op in graph.ops if op.type == kind}
        check.equal(actual=scopes, expected={scope}, what=f"the set of the scopes in the names of {kind}")


def test_a_scope_does_not_end_a_block() -> None:
    """A block that begins inside a scope goes on after it."""

    def forward(model: Any, x: Any) -> Any:
        with poptorch.NameScope("scope"):
            poptorch.Block.start("block", ipu_id=0)
            x = x * 2
        return x + 1

    strategy = poptorch.ShardedExecution(poptorch.Stage("block").ipu(1))
    options = poptorch.Options().setExecutionStrategy(strategy)
    graph = inference_graph(poptorch, as_model(forward), torch.ones(1, 2), options=options)

    ipus = {op.type: op.ipu for op in graph.ops if op.type in ("Mul", "Add")}
    check.equal(actual=ipus, expected={"Mul": 1, "Add": 1}, what="the IPU by type of operation")


def test_a_scope_changes_no_value() -> None:
    """On the device and on the host a scope only names."""

    def forward(model: Any, x: Any) -> Any:
        with poptorch.NameScope("scope"), poptorch.Attribute(__outline={"layer": "product"}):
            return x * 2

    x = torch.tensor([[1.0, -2.0]])

    assert_same(infer(poptorch, forward, x), x * 2, "the result on the device")
    assert_same(forward(None, x), x * 2, "the result on the host")


def _read(text: Any) -> Any:
    """What a dumped attribute holds; text that is no JSON is left as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


@pytest.mark.emulator
def test_an_attribute_reaches_the_operation() -> None:
    """Operations inside carry the attribute, the innermost value of each of its keys; those outside do not.

    An attribute is a dictionary, which is joined to the outer one (poptorch.Attribute, options.py).
    """

    def forward(model: Any, x: Any) -> Any:
        with poptorch.Attribute(flavour={"first": "sweet", "last": "salty"}):
            x = x * 2
            with poptorch.Attribute(flavour={"first": "sour"}, __outline={"layer": "embedding"}):
                x = x - 1
            x = torch.exp(x)
        return x + 1

    graph = inference_graph(poptorch, as_model(forward), torch.ones(1, 2))

    outer, inner = {"first": "sweet", "last": "salty"}, {"first": "sour", "last": "salty"}
    expected = {
        "Mul": {"flavour": outer},
        "Sub": {"flavour": inner, "__outline": {"layer": "embedding"}},
        "Exp": {"flavour": outer},
        "Add": {},
    }
    wanted, arithmetic = {"flavour", "__outline"}, [op for op in graph.ops if op.type in expected]
    carried = {op.type: {key: _read(op.attributes[key]) for key in wanted & set(op.attributes)} for op in arithmetic}
    check.equal(actual=carried, expected=expected, what="the table of attributes by type of operation")
