"""The tracer of the device against ``torch.export``, which records the same calls."""

from __future__ import annotations

import gc
import re
from pathlib import Path
from typing import Any, List, Tuple

import pytest
import torch
import torch.nn.functional as F

from ipu_conformance.emulator.poptorch.compile import capture, tracing


class Constants(torch.nn.Module):
    """Reads tensors that are no weights: one that it holds, one that it makes, one that nothing reads."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.arange(3.0)

    def forward(self, x: Any) -> Any:
        torch.tensor([7.0])
        return x * self.table + torch.tensor([1.0, 2.0, 3.0]) + self.table


class Tied(torch.nn.Module):
    """Uses one weight under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
        self.second.weight = self.first.weight

    def forward(self, x: Any) -> Any:
        return {"out": self.second(self.first(x)), "count": 3}


class Picked(torch.nn.Module):
    """Takes the larger of two tensors by Python's function, and a row by a tensor."""

    def forward(self, x: Any) -> Any:
        return max(x.sum(), x.prod()), torch.stack([x, -x])[0, 1:]


def _normalised() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU(), torch.nn.Dropout(0.25), torch.nn.Linear(4, 3)
    )


class Loss(torch.nn.Module):
    """Converts types and returns a loss, whose parts torch computes with operations of its own."""

    def forward(self, x: Any) -> Any:
        return F.mse_loss(x.half().float(), torch.zeros(2, 3)), F.cross_entropy(x, torch.tensor([0, 2]))


MODELS = [Constants, Tied, Picked, _normalised, Loss]


def _operations(module: torch.fx.GraphModule) -> List[Tuple[str, str, str]]:
    """What a graph does, without the assertions of ``torch.export`` about what was true while it traced."""
    return [
        (node.op, str(node.target), str((node.args, node.kwargs)))
        for node in module.graph.nodes
        if node.target is not torch.ops.aten._assert_tensor_metadata.default and node.op != "placeholder"
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", MODELS)
def test_the_graph_is_that_of_torch_export(make: Any) -> None:
    """Operations, arguments, names and order are those that ``torch.export`` records."""
    model, x = make(), torch.randn(2, 3)
    exported = torch.export.export(model, (x,), strict=False).module(check_guards=False)
    module, _ = tracing.trace(model, (x,))
    ours, theirs = _operations(module), _operations(exported)
    (name,) = [node.name for node in exported.graph.nodes if node.op == "placeholder"]

    assert [(op, target) for op, target, _ in ours[:-1]] == [(op, target) for op, target, _ in theirs[:-1]]
    assert [arguments for *_, arguments in ours] == [
        re.sub(rf"\b{name}\b", "tensors_0", arguments) for *_, arguments in theirs
    ]


@pytest.mark.parametrize("make", MODELS)
def test_the_graph_computes_what_the_model_does(make: Any) -> None:
    """A recompiled graph gives the outputs of the model, one after the other."""
    model, x = make().eval(), torch.randn(2, 3)
    module, structure = tracing.trace(model, (x,))
    module.recompile()
    outputs = torch.utils._pytree.tree_unflatten(list(module(x)), structure)

    assert str(outputs) == str(model(x))


def test_what_forward_keeps_is_put_back() -> None:
    """A model that puts a tensor into an attribute does not keep one of the trace, which has no values."""

    class Keeps(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last: Any = None

        def forward(self, x: Any) -> Any:
            self.last = x * 2
            return x

    model = Keeps()
    capture.capture(model, (torch.ones(2),), {})

    assert model.last is None


def test_an_operation_knows_the_line_that_called_it() -> None:
    """The location of an operation is the innermost line outside the files that are excluded."""

    class Nested(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            return self.layer(x)

    captured = capture.capture(Nested(), (torch.ones(2, 3),), {})
    (linear,) = [node for node in captured.module.graph.nodes if node.op == "call_function"]
    line = Nested.forward.__code__.co_firstlineno + 1

    frameworks = str(Path(torch.__file__).parent)
    assert capture.location(linear, (frameworks,)) == f"{__file__}:{line}"
    assert capture.location(linear, (frameworks, __file__)) == ""
    assert "linear.py" in capture.location(linear, ())


def test_garbage_that_computes_is_collected_later() -> None:
    """What an executor in a cycle of garbage computes when it is let go stands in no graph of another model."""
    noted: List[Any] = []
    weights = torch.arange(3.0)

    class Computes:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            noted.append(weights.detach().clone())

    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            Computes()
            return x * 2

    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        captured = tracing.trace(Model(), [torch.ones(3)])[0]
    finally:
        gc.set_threshold(*before)
    gc.collect()

    called = [str(node.target) for node in captured.graph.nodes if node.op == "call_function"]
    assert called == ["aten.mul.Tensor"]
    assert (len(noted), gc.isenabled()) == (1, True)
