"""What references to nodes mean: flat numbers of outputs in a graph, names of outputs in the body of a function."""

from __future__ import annotations

from typing import Dict, List, Mapping, Sequence, Tuple

from ipu_conformance.ir.readers.tensorflow.messages import Node
from ipu_conformance.ir.tensor import IRError

MOST_OUTPUTS = 4096

OUTPUTS: Mapping[str, Tuple[str, ...]] = {
    **dict.fromkeys(
        ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"),
        ("y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2", "reserve_space_3"),
    ),
    **dict.fromkeys(("SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits"), ("loss", "backprop")),
    "TensorListPopBack": ("output_handle", "tensor"),
    "TopKV2": ("values", "indices"),
    "TopK": ("values", "indices"),
    "Unique": ("y", "idx"),
    "MaxPoolWithArgmax": ("output", "argmax"),
}
"""The names of the outputs of ops that have several; all others are known by those that are read."""


class References:
    """The references among some nodes; only the outputs of functions' bodies have names."""

    def __init__(self, nodes: Sequence[Node], named: bool) -> None:
        self._types = {node.name: node.op for node in nodes}
        self._named = named
        self._parts: Dict[str, Dict[str, int]] = {}
        """By node, the most values of each of its outputs that are read."""

    def note(self, reference: str) -> None:
        """Take a reference into account."""
        if reference.startswith("^"):
            return
        node, output, place = self._split(reference)
        parts = self._parts.setdefault(node, {})
        parts[output] = max(parts.get(output, 0), place + 1)

    def flat(self, reference: str) -> str:
        """A reference with the number of the output alone, which the first does not need."""
        node, output, place = self._split(reference)
        place += self._before(node, output)
        return f"{node}:{place}" if place else node

    def count(self, node: Node) -> int:
        """How many outputs of a node are known: at least one."""
        parts = self._parts.get(node.name, {})
        return max([1, *(self._before(node.name, output) + length for output, length in parts.items())])

    def labels(self, node: Node) -> Tuple[str, ...]:
        """The names of the outputs of a node of unknown type that are read, where there are several."""
        parts = self._parts.get(node.name, {})
        return tuple(parts) if self._named and len(parts) > 1 and node.op not in OUTPUTS else ()

    def _before(self, node: str, output: str) -> int:
        known = OUTPUTS.get(self._types.get(node, ""))
        if not output:
            return 0
        if known is not None:
            if output not in known:
                raise IRError(f"{self._types[node]} {node!r} has no output {output!r}; it has {', '.join(known)}")
            return known.index(output)
        total = 0
        for name, length in self._parts.get(node, {}).items():
            if name == output:
                return total
            total += length
        return total

    def _split(self, reference: str) -> Tuple[str, str, int]:
        node, *rest = reference.split(":")
        number = rest[-1] if rest else "0"
        if len(rest) > (2 if self._named else 1) or not (number.isdecimal() and len(number) < 6):
            if self._named and len(rest) == 1:
                return node, rest[0], 0
            raise IRError(f"{reference[:80]!r} does not refer to an output of a node")
        if int(number) >= MOST_OUTPUTS:
            raise IRError(f"{reference[:80]!r} is beyond the {MOST_OUTPUTS} outputs that a node may have")
        return node, rest[0] if len(rest) == 2 else "", int(number)


def references(nodes: Sequence[Node], named: bool, others: Sequence[str] = ()) -> References:
    """The references of nodes, and others: which outputs of each node are read."""
    collected = References(nodes, named)
    listed: List[str] = [name for node in nodes for name in node.inputs]
    for reference in (*listed, *others):
        collected.note(reference)
    return collected
