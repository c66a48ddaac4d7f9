"""Dissolves the regions of ``torch.no_grad``, so that what every operation does can be seen from the graph alone."""

from __future__ import annotations

from typing import Dict, List

import torch
from torch.fx import GraphModule, Node

from ipu_conformance.emulator.poptorch.compile import blocks

SWITCH = torch._C._set_grad_enabled
"""The operation that the tracer records where a program turns gradients on or off."""


def dissolve(module: GraphModule) -> None:
    """Take the switches of gradients out of a graph.

    What goes into a region without gradients is detached first, weights too, so that nothing inside has a gradient
    and what it changes in place is changed for good. A region as the surroundings of the whole call is none.
    """
    surroundings = torch.is_grad_enabled()
    region: List[Node] = []
    enabled = surroundings
    switches = []
    for node in list(module.graph.nodes):
        if node.op == "call_function" and node.target is SWITCH:
            _detach(module, region)
            region, enabled = [], bool(node.args[0])
            switches.append(node)
        elif node.op == "output":
            _detach(module, region)
        elif surroundings and not enabled:
            region.append(node)
    for switch in switches:
        module.graph.erase_node(switch)
    if switches:
        module.graph.lint()


def _detach(module: GraphModule, region: List[Node]) -> None:
    """Make the operations of a region read detached values of what was made outside it."""
    inside = set(region)
    outside = dict.fromkeys(source for node in region for source in node.all_input_nodes if source not in inside)
    detached: Dict[Node, Node] = {}
    for source in outside:
        with module.graph.inserting_before(region[0]):
            detached[source] = _detached(module, source, region[0])
    for node in region:
        for source in node.all_input_nodes:
            if source in detached:
                node.replace_input_with(source, detached[source])


def _detached(module: GraphModule, operand: Node, first: Node) -> Node:
    """A value without its gradient, in the block of the region's first operation."""
    detached = module.graph.call_function(torch.ops.aten.detach.default, (operand,))
    detached.meta = {name: operand.meta[name] for name in ("val", "tensor_meta") if name in operand.meta}
    custom = first.meta.get("custom", {})
    detached.meta["custom"] = {**custom, blocks.OPERATION: None} if custom else {}
    return detached
