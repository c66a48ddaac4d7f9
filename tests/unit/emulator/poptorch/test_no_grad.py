"""Regions without gradients, dissolved into the graph."""

from __future__ import annotations

from typing import Any, List

import torch

from ipu_conformance.emulator.poptorch.compile import blocks, no_grad, tracing


class Mixed(torch.nn.Module):
    """Uses one weight with and without its gradient, and keeps a running sum."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([2.0, -1.0]))
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            scale = x * self.weight
            self.total.add_(scale.sum(0))
            with torch.enable_grad():
                scale = scale + 1
        return (x * self.weight * scale).sum()


def _dissolved(model: torch.nn.Module, x: torch.Tensor) -> torch.fx.GraphModule:
    module, _ = tracing.trace(model, (x,))
    assert len(_switches(module)) == 4
    no_grad.dissolve(module)
    module.recompile()
    return module


def _switches(module: torch.fx.GraphModule) -> List[torch.fx.Node]:
    return [node for node in module.graph.nodes if node.target is no_grad.SWITCH]


def test_values_gradients_and_changes_stay() -> None:
    """The dissolved graph gives the model's output, gradient and buffer, and holds no switch."""
    x = torch.tensor([[1.0, 2.0], [3.0, -4.0]])
    model = Mixed()
    expected = Mixed()
    expected(x).backward()
    module = _dissolved(model, x)
    (output,) = module(x)
    output.backward()

    assert not _switches(module)
    assert torch.equal(output, Mixed()(x))
    assert torch.equal(module.weight.grad, expected.weight.grad)
    assert torch.equal(module.total, expected.total)
    assert not module.total.requires_grad


def test_a_graph_without_regions_is_left_alone() -> None:
    """Nothing is added to a graph that has no region."""
    module, _ = tracing.trace(torch.nn.ReLU(), (torch.ones(2),))
    before = [node.name for node in module.graph.nodes]
    no_grad.dissolve(module)

    assert [node.name for node in module.graph.nodes] == before


def test_operations_keep_their_blocks() -> None:
    """What was inside a region is in the block that it was written in, and so is what detaches its inputs."""
    from torch.fx import traceback

    class Placed(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            with blocks.new_forward():
                x = x * 2
                blocks.Block.start("inside", ipu_id=1)
                with torch.no_grad():
                    return x + 1

    with traceback.preserve_node_meta():
        module, _ = tracing.trace(Placed(), (torch.ones(2),))
    no_grad.dissolve(module)
    marks = {
        str(node.target): blocks.tag_of(node, blocks.BLOCK).user_id
        for node in module.graph.nodes
        if node.op == "call_function"
    }

    assert marks == {"aten.mul.Tensor": None, "aten.detach.default": "inside", "aten.add.Tensor": "inside"}
