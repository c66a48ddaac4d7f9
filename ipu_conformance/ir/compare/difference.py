"""How two graphs differ, in sentences, ordered by where they differ; one op more or less is one sentence."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Dict, Iterator, List, Optional, Set, Tuple

from ipu_conformance.ir.compare.alignment import align
from ipu_conformance.ir.compare.isomorphism import COMMUTATIVE, ISOMORPHIC, UNDECIDED, isomorphic
from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.ir.tensor import Attribute, Literal, shape_text

INPUT, WEIGHT = "graph input", "weight"

MAX_PASSED = 256
"""How many tensors are looked at when following a tensor back through ops without a partner."""


@dataclass(frozen=True)
class Difference:
    """One difference; ``kind`` is graph, missing, extra, type, name, attribute, placement, wiring, tensor or values.

    ``position`` counts ops in graph order: the place in the expected graph that it is about.
    """

    position: float
    kind: str
    sentence: str

    def __str__(self) -> str:
        return self.sentence


def diff(expected: Graph, actual: Graph, *, structural: bool = False) -> List[Difference]:
    """How ``actual`` differs from ``expected``; nothing when they are the same but for the order of ops.

    With ``structural``, names of all kinds, the order of inputs and outputs, the opset and values of weights are not
    compared: nothing is found when the graphs are isomorphic.
    """
    comparison = _Comparison(expected, actual, structural)
    if not structural:
        return _ordered(comparison)
    outcome = isomorphic(expected, actual)
    if outcome.verdict == ISOMORPHIC:
        return []
    found_out = _ordered(comparison)
    if outcome.verdict == UNDECIDED or not found_out:
        found_out.append(Difference(len(expected.ops), "graph", outcome.sentence))
    return found_out


def _ordered(comparison: _Comparison) -> List[Difference]:
    return sorted(comparison.differences(), key=lambda difference: difference.position)


class _Comparison:
    """The walk over two aligned graphs; tensors are paired as the ops that make or read them are."""

    def __init__(self, expected: Graph, actual: Graph, structural: bool) -> None:
        self.expected, self.actual, self.structural = expected, actual, structural
        self.alignment = alignment = align(expected, actual, structural=structural)
        self.tensors: Dict[str, str] = {}
        self.taken: Set[str] = set()
        self.missing = {id(expected.ops[index]) for index in alignment.left_over()[0]}
        self.extra = {id(actual.ops[index]) for index in alignment.left_over()[1]}

    def differences(self) -> Iterator[Difference]:
        """Every difference, in no order."""
        if not self.structural:
            for what in ("name", "opset"):
                one, other = getattr(self.expected, what), getattr(self.actual, what)
                if one != other:
                    yield Difference(-1, "graph", f"the graph's {what}: {one!r} expected, {other!r} found")
            yield from self._given_by_name()
        pairs = [
            (left, self.expected.ops[left], self.actual.ops[right])
            for left, right in sorted(self.alignment.forward.items())
        ]
        for pair in pairs:
            yield from self._op(*pair)
        for pair in pairs:
            yield from self._wiring(*pair)
        for index, op in enumerate(self.expected.ops):
            if id(op) in self.missing:
                yield Difference(index, "missing", self._missing(op))
        for index, op in enumerate(self.actual.ops):
            if id(op) in self.extra:
                yield Difference(self._position(index), "extra", self._extra(op))
        yield from self._given_left_over()
        yield from self._outputs()
        yield from self._tensors()

    def _given_by_name(self) -> Iterator[Difference]:
        """Pair graph inputs and weights of the same name, then what is left of each in order."""
        roles = [_roles(self.expected), _roles(self.actual)]
        for name, role in roles[0].items():
            if name in roles[1]:
                self._pair(name, name)
                if roles[1][name] != role:
                    yield Difference(-0.5, "graph", f"{name!r}: {role} expected, {roles[1][name]} found")
        for role in (INPUT, WEIGHT):
            lefts = [name for name, has in roles[0].items() if has == role and name not in self.tensors]
            rights = [name for name, has in roles[1].items() if has == role and name not in self.taken]
            for one, other in zip(lefts, rights) if len(lefts) == len(rights) else ():
                self._pair(one, other)
                yield Difference(-0.5, "name", f"{role} {one!r} expected, {other!r} found")
        one_order, other_order = self.expected.inputs, self.actual.inputs
        if set(one_order) == set(other_order) and one_order != other_order:
            said = f"the graph's inputs: the order {', '.join(one_order)} expected, {', '.join(other_order)} found"
            yield Difference(-0.5, "graph", said)

    def _given_left_over(self) -> Iterator[Difference]:
        """Graph inputs and weights without a partner, unless only ops without a partner read them."""
        lefts = [(name, role) for name, role in _roles(self.expected).items() if name not in self.tensors]
        rights = [(name, role) for name, role in _roles(self.actual).items() if name not in self.taken]
        if self.structural:
            for given in list(lefts):
                partner = next((other for other in rights if self._unread_alike(given, other)), None)
                if partner is not None:
                    self._pair(given[0], partner[0])
                    lefts.remove(given)
                    rights.remove(partner)
        for name, role in lefts:
            if not _read_by(self.expected, name, self.missing):
                yield Difference(-0.5, "graph", f"{role} {name!r} is missing")
        for name, role in rights:
            if not _read_by(self.actual, name, self.extra):
                yield Difference(-0.5, "graph", f"{role} {name!r} is found and not expected")

    def _unread_alike(self, given: Tuple[str, str], other: Tuple[str, str]) -> bool:
        """Whether two inputs or two weights are alike, and no op on one side reads them: its wiring is reported."""
        one, two = self.expected.tensors[given[0]], self.actual.tensors[other[0]]
        unread = not self.expected.consumers(one.name) or not self.actual.consumers(two.name)
        return unread and (given[1], one.dtype, one.shape) == (other[1], two.dtype, two.shape)

    def _pair(self, one: str, other: str) -> None:
        if one not in self.tensors and other not in self.taken:
            self.tensors[one] = other
            self.taken.add(other)

    def _op(self, index: int, one: Op, other: Op) -> Iterator[Difference]:
        here = one.name or str(one)
        if one.type != other.type:
            yield Difference(index, "type", f"op {here!r}: {one.type} expected, {other.type} found")
        if one.name != other.name and not self.structural:
            yield Difference(index, "name", f"{one}: name {one.name!r} expected, {other.name!r} found")
        for what in ("ipu", "stage"):
            wanted, got = getattr(one, what), getattr(other, what)
            if wanted != got:
                yield Difference(index, "placement", f"{one}: {what} {_index(wanted)} expected, {_index(got)} found")
        for name in sorted({*one.attributes, *other.attributes}):
            values = one.attributes.get(name), other.attributes.get(name)
            if values[0] != values[1]:
                said = f"{one}: attribute {name!r} {_value(values[0])} expected, {_value(values[1])} found"
                yield Difference(index, "attribute", said)
        if len(one.outputs) != len(other.outputs):
            said = f"{one}: {len(one.outputs)} outputs expected, {len(other.outputs)} found"
            yield Difference(index, "wiring", said)
        for slot, (wanted, got) in enumerate(zip(one.outputs, other.outputs)):
            if wanted and got:
                self._pair(wanted, got)
            if wanted != got and (not self.structural or not (wanted and got)):
                said = f"{one}: output {slot} {_tensor_name(wanted)} expected, {_tensor_name(got)} found"
                yield Difference(index, "name", said)

    def _wiring(self, index: int, one: Op, other: Op) -> Iterator[Difference]:
        if len(one.inputs) != len(other.inputs):
            said = f"{one}: {len(one.inputs)} inputs expected, {len(other.inputs)} found"
            yield Difference(index, "wiring", said)
        got_names = list(other.inputs)
        if self.structural and one.type in COMMUTATIVE:
            got_names = self._exchanged(one.inputs, got_names)
        for slot, (wanted, got) in enumerate(zip(one.inputs, got_names)):
            if not self._same(wanted, got):
                said = f"{one}: input {slot} {self._from(wanted, self.expected)} expected, "
                yield Difference(index, "wiring", said + f"{self._from(got, self.actual)} found")

    def _exchanged(self, wanted: Tuple[str, ...], got: List[str]) -> List[str]:
        """The actual inputs of a commutative op, each at the place where it is expected if there is one."""
        left = list(got)
        placed: List[Optional[str]] = []
        for name in wanted:
            partner = self.tensors.get(name)
            placed.append(partner if partner in left else None)
            if partner in left:
                left.remove(partner)
        return [name if name is not None else left.pop(0) for name in placed if name is not None or left]

    def _same(self, wanted: str, got: str) -> bool:
        """Whether two tensors are paired, looking through ops that are missing or extra: those are reported once."""
        if not wanted or not got:
            return wanted == got
        wants, gots = self._through(wanted, self.expected, self.missing), self._through(got, self.actual, self.extra)
        for one in wants:
            if one in self.tensors:
                if self.tensors[one] in gots:
                    return True
            elif self.structural and one not in self.expected.producers:
                role = one in self.expected.initializers
                free = next((n for n in gots if self._free(n) and (n in self.actual.initializers) == role), None)
                if free is not None:
                    self._pair(one, free)
                    return True
        return False

    def _free(self, name: str) -> bool:
        return name not in self.taken and name not in self.actual.producers

    def _through(self, name: str, graph: Graph, passed: Set[int]) -> List[str]:
        """The tensor and, where its maker has no partner, what that op reads, and so on."""
        names = {name: None}
        pending = [name]
        while pending and len(names) < MAX_PASSED:
            maker = graph.producers.get(pending.pop())
            if maker is not None and id(maker) in passed:
                for source in maker.inputs:
                    if source and source not in names:
                        names[source] = None
                        pending.append(source)
        return list(names)

    def _missing(self, op: Op) -> str:
        before = self._paired_maker(op, self.expected, self.missing)
        if before is None:
            return f"{_stage(op)}{op} is missing"
        return f"{_stage(op)}{before} has no {op.type} after it"

    def _extra(self, op: Op) -> str:
        before = self._paired_maker(op, self.actual, self.extra)
        if before is None:
            return f"{_stage(op)}{op} is found and not expected"
        return f"{_stage(op)}{before} has {op} after it, which is not expected"

    def _paired_maker(self, op: Op, graph: Graph, without: Set[int]) -> Optional[Op]:
        """The first op that makes what this one reads, in the same stage and with a partner."""
        makers = (graph.producers[name] for name in op.inputs if name in graph.producers)
        return next((maker for maker in makers if id(maker) not in without and maker.stage == op.stage), None)

    def _position(self, index: int) -> float:
        """The place in the expected graph just after the partner of the last op before an extra one."""
        while index >= 0 and index not in self.alignment.backward:
            index -= 1
        return self.alignment.backward[index] + 0.5 if index >= 0 else -0.5

    def _outputs(self) -> Iterator[Difference]:
        """Differences in what comes out of the graph, looking through ops without a partner."""
        last = len(self.expected.ops)
        left = dict.fromkeys(self.actual.outputs)
        for name in self.expected.outputs:
            reached = {self.tensors.get(one) for one in self._through(name, self.expected, self.missing)}
            partner = next((n for n in left if reached.intersection(self._through(n, self.actual, self.extra))), None)
            if partner is None:
                yield Difference(last, "graph", f"graph output {name!r} is missing")
            else:
                del left[partner]
        for name in left:
            yield Difference(last, "graph", f"graph output {name!r} is found and not expected")
        order = tuple(self.tensors.get(name, name) for name in self.expected.outputs)
        if not self.structural and order != self.actual.outputs and set(order) == set(self.actual.outputs):
            said = f"the graph's outputs: the order {', '.join(order)} expected, {', '.join(self.actual.outputs)} found"
            yield Difference(last, "graph", said)

    def _tensors(self) -> Iterator[Difference]:
        """Differences in the dtypes, shapes and values of paired tensors."""
        makers = {name: index for index, op in enumerate(self.expected.ops) for name in op.outputs}
        for one, other in self.tensors.items():
            where = makers.get(one, -0.5)
            wanted, got = self.expected.tensors[one], self.actual.tensors[other]
            if wanted.dtype != got.dtype:
                said = f"tensor {one!r}: dtype {wanted.dtype} expected, {got.dtype} found"
                yield Difference(where, "tensor", said)
            if wanted.shape != got.shape:
                said = f"tensor {one!r}: shape {shape_text(wanted.shape)} expected, {shape_text(got.shape)} found"
                yield Difference(where, "tensor", said)
            values = self.expected.initializers.get(one), self.actual.initializers.get(other)
            if not self.structural and values[0] != values[1]:
                said = f"weight {one!r}: {_values(values[0])} expected, {_values(values[1])} found"
                yield Difference(where, "values", said)

    def _from(self, name: str, graph: Graph) -> str:
        maker = graph.producers.get(name)
        return f"{_tensor_name(name)} of {maker}" if maker is not None else _tensor_name(name)


def _roles(graph: Graph) -> Dict[str, str]:
    return {**dict.fromkeys(graph.inputs, INPUT), **dict.fromkeys(graph.initializers, WEIGHT)}


def _read_by(graph: Graph, name: str, ops: Set[int]) -> bool:
    readers = graph.consumers(name)
    return bool(readers) and all(id(reader) in ops for reader in readers)


def _stage(op: Op) -> str:
    return "" if op.stage is None else f"stage {op.stage}: "


def _index(value: Optional[int]) -> str:
    return "none" if value is None else str(value)


def _tensor_name(name: str) -> str:
    return repr(name) if name else "none"


def _value(value: Optional[Attribute]) -> str:
    if value is None:
        return "none"
    if isinstance(value, Literal):
        return f"{value.dtype} {shape_text(value.shape)} of {_values(value.data)}"
    return repr(value)


def _values(data: Optional[bytes]) -> str:
    return "no values" if data is None else f"values with SHA-256 {hashlib.sha256(data).hexdigest()[:12]}…"
