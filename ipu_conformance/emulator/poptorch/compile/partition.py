"""Cuts a captured graph into stages: plain functions of weights, inputs and the values that earlier stages made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

import torch
from torch.fx import Graph, GraphModule, Node

from ipu_conformance.emulator.poptorch.compile.capture import Captured, written
from ipu_conformance.emulator.poptorch.run import random_state
from ipu_conformance.emulator.poptorch.run.half import WITHOUT_HALF, Widened
from ipu_conformance.emulator.poptorch.run.wide import Narrowed, is_wide

SEEDED = torch.Tag.nondeterministic_seeded


@dataclass(frozen=True)
class Stage:
    """One stage: ``run(*weights, *inputs, *received)`` gives what it hands on, then the outputs it makes."""

    number: int
    run: Callable[..., Tuple[Any, ...]]
    weights: Tuple[str, ...]
    owned: Tuple[str, ...]
    """The weights that this stage updates: those that no earlier stage uses."""
    inputs: Tuple[int, ...]
    """Which of the call's tensors the stage reads from the host."""
    received: Tuple[str, ...]
    handed: Tuple[str, ...]
    outputs: Tuple[int, ...]
    """Which leaves of the model's output the stage makes."""
    loss: bool
    """Whether the loss is made here; it is then the last value that ``run`` gives."""
    random: bool
    """Whether the stage draws random numbers."""
    writes: bool
    """Whether an operation of the stage writes into a tensor."""
    nodes: Tuple[Node, ...]


def cut(captured: Captured, stage_of: Mapping[Node, int], stages: int) -> List[Stage]:
    """The stages of a captured graph, where ``stage_of`` places every operation."""
    computed = [node for node in captured.module.graph.nodes if node in stage_of]
    ordinals = {node: number for number, node in enumerate(node for node in computed if is_random(node))}
    last_use = _last_uses(computed, stage_of)
    loss = captured.losses[0] if captured.losses else None
    seen: Set[str] = set()
    result = []
    for number in range(stages):
        nodes = [node for node in computed if stage_of[node] == number]
        received = _alive(computed, stage_of, last_use, number)
        handed = _alive(computed, stage_of, last_use, number + 1)
        stage = _build(captured, number, nodes, received, handed, loss, seen, stage_of, ordinals)
        seen.update(stage.weights)
        result.append(stage)
    return result


def _last_uses(computed: Sequence[Node], stage_of: Mapping[Node, int]) -> Dict[Node, int]:
    """The latest stage that reads each value."""
    last: Dict[Node, int] = {}
    for node in computed:
        for source in node.all_input_nodes:
            if source in stage_of:
                last[source] = max(last.get(source, 0), stage_of[node])
    return last


def _alive(
    computed: Sequence[Node], stage_of: Mapping[Node, int], last_use: Mapping[Node, int], stage: int
) -> List[Node]:
    """The values that cross the border into ``stage``."""
    return [node for node in computed if stage_of[node] < stage <= last_use.get(node, -1)]


def _build(
    captured: Captured,
    number: int,
    stage_nodes: Sequence[Node],
    received: Sequence[Node],
    handed: Sequence[Node],
    loss: Optional[Node],
    seen: Set[str],
    stage_of: Mapping[Node, int],
    ordinals: Mapping[Node, int],
) -> Stage:
    graph = Graph()
    copies: Dict[Node, Node] = {}
    sources = list(dict.fromkeys(source for node in stage_nodes for source in node.all_input_nodes))
    weight_nodes: Dict[str, List[Node]] = {}
    for node in sources:
        if node.name in captured.weights:
            weight_nodes.setdefault(captured.weights[node.name], []).append(node)
    # An output that is an input or a weight as it is has no operation; the first stage gives it back.
    loose = [n for n in captured.outputs if n is not None and n not in stage_of] if number == 0 else []
    for node in loose:
        if node.name in captured.weights and node not in weight_nodes.get(captured.weights[node.name], ()):
            weight_nodes.setdefault(captured.weights[node.name], []).append(node)
    for name, nodes in weight_nodes.items():
        placeholder = graph.placeholder("w_" + name.replace(".", "_"))
        for node in nodes:
            copies[node] = placeholder
    numbers = {name: index for index, name in enumerate(captured.inputs)}
    read = sorted(
        {numbers[node.name] for node in [*sources, *loose] if node.op == "placeholder"},
    )
    by_number = {numbers[n.name]: n for n in captured.module.graph.nodes if n.op == "placeholder"}
    for index in read:
        copies[by_number[index]] = graph.placeholder(f"input_{index}")
    for node in received:
        copies[node] = graph.placeholder(node.name)
    for node in loose:
        if node not in copies:  # a constant
            copies[node] = graph.node_copy(node)
    for node in stage_nodes:
        for source in node.all_input_nodes:
            if source not in copies:
                copies[source] = graph.node_copy(source, lambda n: copies[n])
        copies[node] = graph.node_copy(node, lambda n: copies[n])
        if node in ordinals:
            _seed(copies[node], ordinals[node])
        if node.target in WITHOUT_HALF:
            copies[node].target = Widened(node.target)
        if is_wide(node):
            copies[node].target = Narrowed(copies[node].target, writes=node.target._schema.is_mutable)
    makes = [
        index for index, node in enumerate(captured.outputs) if node is not None and (stage_of.get(node, 0) == number)
    ]
    values = [copies[node] for node in handed] + [copies[captured.outputs[index]] for index in makes]
    has_loss = loss is not None and stage_of.get(loss) == number
    if has_loss and loss is not None:
        values.append(copies[loss])
    graph.output(tuple(values))
    module = GraphModule(captured.module, graph, class_name=f"Stage{number}")
    weights = tuple(weight_nodes)
    return Stage(
        number=number,
        run=module.forward,
        weights=weights,
        owned=tuple(name for name in weights if name not in seen),
        inputs=tuple(read),
        received=tuple(node.name for node in received),
        handed=tuple(node.name for node in handed),
        outputs=tuple(makes),
        loss=has_loss,
        random=any(is_random(node) for node in stage_nodes),
        writes=any(written(node) for node in stage_nodes),
        nodes=tuple(stage_nodes),
    )


def _seed(copied: Node, ordinal: int) -> None:
    """Seed an operation by its number in the whole model, however the model is cut."""
    if copied.target is torch.ops.aten.dropout.default:
        copied.target = random_state.dropout
        copied.args = (*copied.args, ordinal)
    else:
        copied.target = random_state.Seeded(copied.target, ordinal)


def is_random(node: Node) -> bool:
    """Whether an operation draws random numbers."""
    return SEEDED in getattr(node.target, "tags", ())
