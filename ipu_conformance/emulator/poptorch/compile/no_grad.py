"""Dissolves the regions that the tracer makes of ``torch.no_grad``, so that every operation has a place of its own."""

from __future__ import annotations

from typing import Any, Dict

import torch
from torch.fx import GraphModule, Node

from ipu_conformance.emulator.poptorch.compile import blocks

REGION = torch.ops.higher_order.wrap_with_set_grad_enabled


def dissolve(module: GraphModule) -> None:
    """Put the operations of regions with gradients on or off into the graph itself.

    What goes into a region without gradients is detached first, weights too, so that nothing inside has a gradient
    and what it changes in place is changed for good.
    """
    regions = [node for node in module.graph.nodes if node.op == "call_function" and node.target is REGION]
    for node in regions:
        _dissolve_one(module, node)
    if regions:
        module.graph.lint()
        module.recompile()


def _dissolve_one(module: GraphModule, region: Node) -> None:
    enabled, body, *operands = region.args
    inner: GraphModule = getattr(module, str(body.target))
    dissolve(inner)
    first = next((node for node in inner.graph.nodes if node.op == "call_function"), region)
    waiting = iter(operands)
    copies: Dict[Node, Any] = {}
    with module.graph.inserting_before(region):
        for node in inner.graph.nodes:
            if node.op == "placeholder":
                operand = next(waiting)
                copies[node] = operand if enabled else _detached(module, operand, first)
            elif node.op == "get_attr":
                name = f"{body.target}_{node.target}"
                setattr(module, name, getattr(inner, str(node.target)))
                copies[node] = module.graph.get_attr(name)
            elif node.op == "output":
                _hand_out(region, torch.fx.map_arg(node.args[0], lambda inner_node: copies[inner_node]))
            else:
                copies[node] = module.graph.node_copy(node, lambda inner_node: copies[inner_node])
    module.graph.erase_node(region)
    if not body.users:
        module.graph.erase_node(body)


def _detached(module: GraphModule, operand: Any, first: Node) -> Any:
    """A value without its gradient, in the block of the region's first operation."""
    if not isinstance(operand, Node):
        return operand
    detached = module.graph.call_function(torch.ops.aten.detach.default, (operand,))
    detached.meta = {name: operand.meta[name] for name in ("val", "tensor_meta") if name in operand.meta}
    custom = first.meta.get("custom", {})
    detached.meta["custom"] = {**custom, blocks.OPERATION: None} if custom else {}
    return detached


def _hand_out(region: Node, results: Any) -> None:
    """Replace the uses of the region's results with the values themselves."""
    for user in list(region.users):
        user.replace_all_uses_with(results[user.args[1]])
        user.graph.erase_node(user)
