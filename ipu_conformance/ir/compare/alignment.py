"""Which op of one graph stands for which op of another that is nearly the same.

Names pair first, then neighbourhoods: an op whose surroundings, a few steps wide, occur once in each graph has found
its partner, and pairs then spread along the edges. So one op more or less leaves all others paired.
"""

from __future__ import annotations

from collections import Counter
from typing import Callable, Dict, Hashable, Iterable, List, Optional, Sequence, Tuple

from ipu_conformance.ir.compare.isomorphism import op_label
from ipu_conformance.ir.graph import Graph, Op

WIDEST = 4
"""How many steps of surroundings are looked at first; then fewer, down to the op alone."""

MAX_TABLE = 1_000_000
"""The largest table for ordering what is left; beyond it, what is left is paired by type in order of appearance."""


class Alignment:
    """Pairs of op positions that grow; every op is in one pair at most."""

    def __init__(self, one: Graph, other: Graph) -> None:
        self.graphs = (one, other)
        self.forward: Dict[int, int] = {}
        self.backward: Dict[int, int] = {}
        self._makers = tuple({n: i for i, op in enumerate(g.ops) for n in op.outputs if n} for g in self.graphs)
        self._readers: Tuple[Dict[str, List[Tuple[int, int]]], ...] = ({}, {})
        for graph, readers in zip(self.graphs, self._readers):
            for index, op in enumerate(graph.ops):
                for slot, name in enumerate(op.inputs):
                    readers.setdefault(name, []).append((index, slot))

    def add(self, left: int, right: int) -> None:
        """Pair two ops and, step by step, the ops of equal type around them that only they can be paired with."""
        if left in self.forward or right in self.backward:
            return
        pending = [(left, right)]
        while pending:
            left, right = pending.pop()
            if left in self.forward or right in self.backward:
                continue
            self.forward[left], self.backward[right] = right, left
            pending.extend(self._around(left, right))

    def left_over(self) -> Tuple[List[int], List[int]]:
        """The positions that have no partner, of each graph."""
        one, other = self.graphs
        return (
            [index for index in range(len(one.ops)) if index not in self.forward],
            [index for index in range(len(other.ops)) if index not in self.backward],
        )

    def neighbours(self, side: int, index: int) -> Tuple[List[int], List[int]]:
        """The ops that make what an op reads, and those that read what it makes."""
        op = self.graphs[side].ops[index]
        makers = [self._makers[side][name] for name in op.inputs if name in self._makers[side]]
        readers = [reader for name in op.outputs if name for reader, _ in self._readers[side].get(name, ())]
        return makers, readers

    def _around(self, left: int, right: int) -> Iterable[Tuple[int, int]]:
        sides = [self._free_neighbours(0, left), self._free_neighbours(1, right)]
        for key, found in sides[0].items():
            partner = sides[1].get(key)
            if partner is not None and found is not None:
                yield found, partner

    def _free_neighbours(self, side: int, index: int) -> Dict[Hashable, Optional[int]]:
        """Unpaired neighbours by how they are connected and their type; None where several are alike."""
        taken = self.backward if side else self.forward
        op = self.graphs[side].ops[index]
        keyed: List[Tuple[Hashable, int]] = []
        for slot, name in enumerate(op.inputs):
            if name in self._makers[side]:
                keyed.append((("maker", slot), self._makers[side][name]))
        for slot, name in enumerate(op.outputs):
            keyed.extend((("reader", slot, at), reader) for reader, at in self._readers[side].get(name, ()) if name)
        free: Dict[Hashable, Optional[int]] = {}
        for key, neighbour in keyed:
            if neighbour not in taken:
                key = (key, self.graphs[side].ops[neighbour].type)
                free[key] = None if key in free else neighbour
        return free


def align(one: Graph, other: Graph, *, structural: bool) -> Alignment:
    """Pair the ops of two graphs; with ``structural``, names count for nothing."""
    alignment = Alignment(one, other)
    if not structural:
        _pair_names(alignment)
    surroundings = [_surroundings(graph) for graph in (one, other)]
    for steps in reversed(range(WIDEST + 1)):
        keys = [rounds[steps] for rounds in surroundings]
        _pair_unique(alignment, keys[0].__getitem__, keys[1].__getitem__)
    _pair_in_order(alignment)
    _pair_replaced(alignment)
    return alignment


def _pair_names(alignment: Alignment) -> None:
    # All named pairs are made before any spreads, so that a neighbour is never taken from its namesake. Ops that share
    # a name are told apart by the tensors that they make.
    for named in (_own_name, _made_names):
        free = alignment.left_over()
        names = [[named(graph.ops[index]) for index in indices] for graph, indices in zip(alignment.graphs, free)]
        counts = [Counter(side) for side in names]
        positions = dict(zip(names[1], free[1]))
        for left, name in zip(free[0], names[0]):
            if name is not None and counts[0][name] == counts[1][name] == 1:
                right = positions[name]
                alignment.forward[left], alignment.backward[right] = right, left


def _own_name(op: Op) -> Hashable:
    return op.name or None


def _made_names(op: Op) -> Hashable:
    return (op.name, op.outputs) if op.name and any(op.outputs) else None


def _pair_unique(alignment: Alignment, key_one: Callable[[int], int], key_other: Callable[[int], int]) -> None:
    free = alignment.left_over()
    places: List[Dict[int, List[int]]] = [{}, {}]
    for by_key, indices, key in zip(places, free, (key_one, key_other)):
        for index in indices:
            by_key.setdefault(key(index), []).append(index)
    for value, lefts in places[0].items():
        rights = places[1].get(value, [])
        if len(lefts) == len(rights) == 1:
            alignment.add(lefts[0], rights[0])


def _surroundings(graph: Graph) -> List[List[int]]:
    """For 0 to WIDEST steps, a number for each op that stands for all that is around it so far."""
    makers = {name: index for index, op in enumerate(graph.ops) for name in op.outputs if name}
    rounds = [[hash(op_label(op)) for op in graph.ops]]
    for _ in range(WIDEST):
        before = rounds[-1]
        seen: List[List[int]] = [[] for _ in graph.ops]
        for index, op in enumerate(graph.ops):
            for slot, name in enumerate(op.inputs):
                if name in makers:
                    seen[index].append(hash(("from", slot, before[makers[name]])))
                    seen[makers[name]].append(hash(("to", slot, before[index])))
                elif name:
                    seen[index].append(hash(("given", slot, graph.tensors[name].dtype, graph.tensors[name].shape)))
        rounds.append([hash((before[index], *sorted(around))) for index, around in enumerate(seen)])
    return rounds


def _pair_in_order(alignment: Alignment) -> None:
    """Pair what is left by type along a longest common subsequence."""
    one, other = alignment.graphs
    lefts, rights = alignment.left_over()
    types = [one.ops[index].type for index in lefts], [other.ops[index].type for index in rights]
    for i, j in _common(*types):
        alignment.add(lefts[i], rights[j])


def _common(one: Sequence[str], other: Sequence[str]) -> List[Tuple[int, int]]:
    if len(one) * len(other) > MAX_TABLE:
        waiting: Dict[str, List[int]] = {}
        for j in reversed(range(len(other))):
            waiting.setdefault(other[j], []).append(j)
        return [(i, waiting[kind].pop()) for i, kind in enumerate(one) if waiting.get(kind)]
    lengths = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i in reversed(range(len(one))):
        for j in reversed(range(len(other))):
            same = one[i] == other[j]
            lengths[i][j] = lengths[i + 1][j + 1] + 1 if same else max(lengths[i + 1][j], lengths[i][j + 1])
    pairs = []
    i = j = 0
    while i < len(one) and j < len(other):
        if one[i] == other[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif lengths[i + 1][j] >= lengths[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs


def _pair_replaced(alignment: Alignment) -> None:
    """Pair ops of different types that stand in the same place: what is around them is paired."""
    lefts, rights = alignment.left_over()
    places: Dict[Hashable, List[int]] = {}
    for right in rights:
        places.setdefault(_place(alignment, 1, right), []).append(right)
    for left in lefts:
        place = _place(alignment, 0, left)
        if place is not None and places.get(place):
            alignment.add(left, places[place].pop(0))


def _place(alignment: Alignment, side: int, index: int) -> Hashable:
    """The paired ops around an op, by their position in the first graph; None when there are none."""
    op: Op = alignment.graphs[side].ops[index]
    makers, readers = alignment.neighbours(side, index)
    if side:
        makers = [alignment.backward.get(maker, -1) for maker in makers]
        readers = [alignment.backward.get(reader, -1) for reader in readers]
    else:
        makers = [maker if maker in alignment.forward else -1 for maker in makers]
        readers = [reader if reader in alignment.forward else -1 for reader in readers]
    if not makers and not readers and not any(op.inputs):
        return None
    return tuple(sorted(set(makers))), tuple(sorted(set(readers)))
