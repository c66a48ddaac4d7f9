"""Whether two graphs are the same up to names.

Both graphs are coloured together: ops and tensors of one colour are alike in type, attributes, placement, and in the
colours around them. Where colours alone do not pair everything, one pair is fixed at a time and the colours are refined
again, with the work on a budget: highly symmetrical graphs can make the search exponential.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Dict, Hashable, Iterable, List, Mapping, Optional, Set, Tuple

from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.ir.tensor import FrozenDict, shape_text

ISOMORPHIC, DIFFERENT, UNDECIDED = "isomorphic", "different", "undecided"

DEFAULT_BUDGET = 2_000_000
"""The most edges that the search looks at: a few seconds."""

COMMUTATIVE = frozenset(("Add", "And", "Equal", "Max", "Mean", "Min", "Mul", "Or", "Sum", "Xor"))
"""The types whose inputs may be exchanged."""


@dataclass(frozen=True)
class Outcome:
    """What the comparison found; ``ops`` maps positions of ops in one graph to the other's when they are isomorphic."""

    verdict: str
    sentence: str
    ops: Mapping[int, int] = field(default_factory=lambda: FrozenDict({}))


def isomorphic(
    one: Graph, other: Graph, *, placement: bool = True, attributes: bool = True, budget: int = DEFAULT_BUDGET
) -> Outcome:
    """Whether two graphs are the same up to names and the order of ops, inputs and outputs.

    Values of weights are not compared. ``placement`` and ``attributes`` may be left out of the comparison.
    """
    sides = [_Side(graph, placement, attributes) for graph in (one, other)]
    counts = [Counter(side.labels) for side in sides]
    for label in sorted(counts[0] + counts[1], key=repr):
        if counts[0][label] != counts[1][label]:
            has = f"one graph has {counts[0][label]} and the other {counts[1][label]}"
            return Outcome(DIFFERENT, f"of the {_said(label)}, {has}")
    search = _Search(sides[0], sides[1], budget)
    try:
        pairs = search.run()
    except _BudgetError:
        return Outcome(UNDECIDED, f"whether the graphs are isomorphic is not decided after looking at {budget} edges")
    if pairs is None:
        return Outcome(DIFFERENT, "the graphs have the same ops and tensors, connected differently")
    ops = {node: pairs[node] for node in range(len(one.ops))}
    return Outcome(ISOMORPHIC, "the graphs are the same up to names", FrozenDict(ops))


def op_label(op: Op, *, placement: bool = True, attributes: bool = True) -> Tuple[Hashable, ...]:
    """All that is compared of an op itself."""
    held = tuple(op.attributes.items()) if attributes else ()
    return ("op", op.type, held, *((op.ipu, op.stage) if placement else ()))


def _said(label: Tuple[Any, ...]) -> str:
    if label[0] == "op":
        return f"{label[1]} ops with attributes {dict(label[2])} and placement {label[3:]}"
    return f"{label[0]}s of dtype {label[1]} and shape {shape_text(label[2])}{' that are outputs' if label[3] else ''}"


class _BudgetError(Exception):
    """The search has looked at as many edges as it may."""


class _Side:
    """One graph as labelled nodes, ops first, and labelled edges between ops and tensors, seen from both ends."""

    def __init__(self, graph: Graph, placement: bool, attributes: bool) -> None:
        self.labels: List[Tuple[Hashable, ...]] = [
            op_label(op, placement=placement, attributes=attributes) for op in graph.ops
        ]
        roles = {**dict.fromkeys(graph.inputs, "input"), **dict.fromkeys(graph.initializers, "weight")}
        outputs = set(graph.outputs)
        node_of: Dict[str, int] = {}
        for name, tensor in graph.tensors.items():
            node_of[name] = len(self.labels)
            self.labels.append((roles.get(name, "tensor"), tensor.dtype, tensor.shape, name in outputs))
        self.edges: List[List[Tuple[Hashable, int]]] = [[] for _ in self.labels]
        for index, op in enumerate(graph.ops):
            for slot, name in enumerate(op.inputs):
                if name:
                    self._join(("in", 0 if op.type in COMMUTATIVE else slot), index, node_of[name])
            for slot, name in enumerate(op.outputs):
                if name:
                    self._join(("out", slot), index, node_of[name])

    def _join(self, label: Tuple[str, int], op: int, tensor: int) -> None:
        self.edges[op].append((("op", *label), tensor))
        self.edges[tensor].append((("tensor", *label), op))


@dataclass
class _Guess:
    """A node that is fixed to one partner after the other, and how long the trail was before."""

    cell: int
    node: int
    first: int
    mark: int
    partners: Optional[List[int]] = None
    """The partners left to try, listed only when the first one is refuted: it seldom is."""


class _Search:
    """Joint colour refinement of two sides; nodes of the second are numbered after those of the first."""

    def __init__(self, one: _Side, other: _Side, budget: int) -> None:
        self.half = len(one.labels)
        self.edges = [*one.edges, *([(label, node + self.half) for label, node in row] for row in other.edges)]
        self.budget = budget
        self.cells: List[Set[int]] = []
        self.colour: List[int] = [0] * len(self.edges)
        by_label: Dict[Hashable, int] = {}
        for node, label in enumerate((*one.labels, *other.labels)):
            if label not in by_label:
                by_label[label] = len(self.cells)
                self.cells.append(set())
            self.colour[node] = by_label[label]
            self.cells[by_label[label]].add(node)
        self.members: Dict[Tuple[int, int], List[int]] = {}
        self.trail: List[Tuple[int, int]] = []
        """Every move of a node out of a cell, so that a wrong guess can be taken back."""

    def run(self) -> Optional[Dict[int, int]]:
        """A pairing of all nodes that keeps labels and edges, None when there is none."""
        if not self._refine(range(len(self.cells))):
            return None
        guesses: List[_Guess] = []
        cell = 0
        while True:
            while cell < len(self.cells) and len(self.cells[cell]) <= 2:
                cell += 1
            if cell == len(self.cells):
                return {node: max(self.cells[self.colour[node]]) - self.half for node in range(self.half)}
            guesses.append(_Guess(cell, self._member(cell, 0), self._member(cell, 1), len(self.trail)))
            while guesses and not self._next(guesses[-1]):
                guesses.pop()
            if not guesses:
                return None
            cell = guesses[-1].cell  # all cells before it hold a pair each

    def _member(self, cell: int, side: int) -> int:
        """Some node of one side in a cell, found without going through all of a large cell each time."""
        if (cell, side) not in self.members:
            self.members[cell, side] = sorted(node for node in self.cells[cell] if (node >= self.half) == bool(side))
        nodes = self.members[cell, side]
        while self.colour[nodes[-1]] != cell:
            nodes.pop()
        return nodes[-1]

    def _next(self, guess: _Guess) -> bool:
        """Fix the node to the next partner that is not refuted at once; False when none is left."""
        if guess.mark == len(self.trail) and guess.partners is None and self._fix(guess, guess.first):
            return True
        self._undo(guess.mark)
        self.members.clear()
        if guess.partners is None:
            guess.partners = sorted(n for n in self.cells[guess.cell] if n >= self.half and n != guess.first)
        while guess.partners:
            if self._fix(guess, guess.partners.pop()):
                return True
            self._undo(guess.mark)
        return False

    def _fix(self, guess: _Guess, partner: int) -> bool:
        return self._refine([self._split(guess.cell, {guess.node, partner})])

    def _undo(self, mark: int) -> None:
        while len(self.trail) > mark:
            node, old = self.trail.pop()
            self.cells[self.colour[node]].discard(node)
            self.cells[old].add(node)
            self.colour[node] = old

    def _split(self, cell: int, part: Set[int]) -> int:
        """Move a part of a cell to a new one, and return that."""
        new = len(self.cells)
        self.cells.append(part)
        for node in part:
            self.cells[cell].discard(node)
            self.colour[node] = new
            self.trail.append((node, cell))
        return new

    def _balanced(self, cell: Set[int]) -> bool:
        return 2 * sum(node < self.half for node in cell) == len(cell)

    def _refine(self, splitters: Iterable[int]) -> bool:
        """Split cells until all nodes of each see the same colours; False when the two sides come out different."""
        queue = list(splitters)
        while queue:
            splitter = queue.pop()
            seen: Dict[int, List[Hashable]] = {}
            for node in self.cells[splitter]:
                self.budget -= len(self.edges[node]) + 1
                for label, neighbour in self.edges[node]:
                    seen.setdefault(neighbour, []).append(label)
            if self.budget < 0:
                raise _BudgetError
            groups: Dict[int, Dict[Hashable, Set[int]]] = {}
            for neighbour, labels in seen.items():
                key = tuple(sorted(labels)) if len(labels) > 1 else tuple(labels)  # type: ignore[type-var]
                groups.setdefault(self.colour[neighbour], {}).setdefault(key, set()).add(neighbour)
            for cell, parts in groups.items():
                chosen = sorted(parts.values(), key=len)
                if sum(map(len, chosen)) == len(self.cells[cell]):
                    chosen.pop()  # the largest part keeps the colour; counting into the others tells it apart
                for part in chosen:
                    if not self._balanced(part):
                        return False
                    queue.append(self._split(cell, part))
        return True
