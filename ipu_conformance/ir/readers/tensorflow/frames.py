"""The nodes of a graph, or of one call of a function: which are needed, in which order, and what they refer to."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Sequence, Set, Tuple

from ipu_conformance.ir.graph import Op, in_order
from ipu_conformance.ir.readers.op_writer import expanded, most_called
from ipu_conformance.ir.readers.tensorflow.loops import LOOPS
from ipu_conformance.ir.readers.tensorflow.messages import Function, FunctionName, Node
from ipu_conformance.ir.readers.tensorflow.placement import Placement
from ipu_conformance.ir.readers.tensorflow.references import references
from ipu_conformance.ir.tensor import IRError, shown

CALLS = ("PartitionedCall", "StatefulPartitionedCall")


def needed(nodes: Sequence[Node], roots: Iterable[str], inside: bool) -> List[Node]:
    """The nodes that others need, for values or for order."""
    by_name = {node.name: node for node in nodes}
    waiting = [source(root) for root in roots]
    for root in waiting:
        if root not in by_name and not inside:
            raise IRError(f"the graph has no node {root!r}, which should make an output")
    seen: Set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in by_name and name not in seen:
            seen.add(name)
            waiting.extend(source(reference) for reference in by_name[name].inputs)
    return [node for node in nodes if node.name in seen]


def source(reference: str) -> str:
    return reference.lstrip("^").split(":")[0]


def ordered(nodes: Sequence[Node]) -> List[Node]:
    """The nodes in an order in which they can be executed; a cycle is an error."""
    marks = [Op("Node", node.name, tuple(dict.fromkeys(map(source, node.inputs))), (node.name,)) for node in nodes]
    by_name = {node.name: node for node in nodes}
    return [by_name[mark.name] for mark in in_order(marks)]


class Room:
    """How much a graph may still grow when functions, and the turns of loops, become parts of their callers."""

    def __init__(self, nodes: Sequence[Node], functions: Mapping[str, Function]) -> None:
        self._called = {name: [called(node) for node in function.nodes] for name, function in functions.items()}
        total = expanded([called(node) for node in nodes], self._called)
        most = most_called(len(nodes) + sum(len(function.nodes) for function in functions.values()))
        if total > most:
            raise IRError(f"the graph calls functions of {shown(total)} nodes in all; at most {most} are read")
        self._left = most - total

    def takes(self, function: Function, times: int) -> bool:
        """Whether there is room for so many turns of a function, which are counted then."""
        grown = max(0, times - 1) * expanded([called(node) for node in function.nodes], self._called)
        if grown > self._left:
            return False
        self._left -= grown
        return True


def called(node: Node) -> str:
    """The function that a node calls, or repeats; the empty name if there is none."""
    function = node.attributes.get("f" if node.op in CALLS else "body") if node.op in (*CALLS, *LOOPS) else None
    return str(function) if isinstance(function, FunctionName) else ""


class Frame:
    """The nodes of the graph, or of one call of a function, with what their references stand for."""

    def __init__(
        self,
        prefix: str,
        nodes: Sequence[Node],
        arguments: Mapping[str, Any],
        placed: Placement,
        inside: bool,
        after: Tuple[str, ...] = (),
        results: Sequence[str] = (),
    ) -> None:
        self.prefix, self.nodes, self.placed, self.after = prefix, nodes, placed, after
        self.names = references(nodes, inside, results)
        self.values: Dict[str, Any] = dict(arguments)
        """Names of tensors, or Variables, by the references of this frame in their flat form."""

    def value(self, reference: str) -> Any:
        """What a reference stands for."""
        flat = self.names.flat(reference)
        if flat not in self.values:
            raise IRError(f"the graph refers to {self.prefix + reference!r}, which no node makes")
        return self.values[flat]
