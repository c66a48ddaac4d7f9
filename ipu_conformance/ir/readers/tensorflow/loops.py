"""How often a loop of TensorFlow goes round, where that follows from whole numbers that the graph holds.

Only what the condition needs is computed, on whole numbers alone; everything else of a loop's body stays unknown.
"""

from __future__ import annotations

import operator
import struct
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ipu_conformance.ir.readers.tensorflow.messages import Function, FunctionName, Node
from ipu_conformance.ir.readers.tensorflow.references import References, references
from ipu_conformance.ir.tensor import Literal

LOOPS = ("While", "StatelessWhile")
MOST_STEPS = 200_000
"""The most nodes that are computed to count the turns of all loops of a graph."""
LARGEST = 2**63
DEEPEST, DEEPEST_LOOPS = 100, 5
_CODES = {"INT32": "i", "INT64": "q", "BOOL": "?"}

Number = Optional[int]
"""A whole number or a truth; None if it is not known."""
ARITHMETIC: Mapping[str, Callable[..., int]] = {
    "AddV2": operator.add,
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Minimum": min,
    "Maximum": max,
    "Less": operator.lt,
    "LessEqual": operator.le,
    "Greater": operator.gt,
    "GreaterEqual": operator.ge,
    "LogicalAnd": lambda first, second: bool(first and second),
    "Identity": lambda value: value,
}
"""What is computed on whole numbers."""


class _Unknown(Exception):  # noqa: N818 (it says what is)
    """A loop is too long to be counted."""


def number_of(held: Any) -> Number:
    """The whole number that a constant holds; None if it holds something else."""
    if not isinstance(held, Literal) or held.shape or held.dtype not in _CODES:
        return None
    return int(struct.unpack(f"<{_CODES[held.dtype]}", held.data)[0])


def computed(op: str, values: Sequence[Number]) -> Number:
    """What an op makes of whole numbers; None if it, or one of them, is not known."""
    if op not in ARITHMETIC or None in values:
        return None
    try:
        result = int(ARITHMETIC[op](*values))
    except TypeError:
        return None
    return result if abs(result) < LARGEST else None


def body_of(node: Node, functions: Mapping[str, Function], part: str = "body") -> Optional[Function]:
    """The function that a loop repeats, or its condition."""
    name = node.attributes.get(part)
    return functions.get(str(name)) if isinstance(name, FunctionName) else None


class Counter:
    """Counts the turns of a graph's loops; all of them together may take so much work and no more."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self.functions, self.left, self._depth = functions, MOST_STEPS, 0
        self._bodies: Dict[str, _Body] = {}

    def turns(self, node: Node, start: Sequence[Number]) -> Optional[int]:
        """How often a loop that begins with these values goes round; None if the graph does not say, or too often."""
        self._depth = 0
        try:
            return self.ended(node, list(start))[0]
        except _Unknown:
            return None

    def ended(self, node: Node, state: List[Number]) -> Tuple[int, List[Number]]:
        """The number of turns of a loop, and its values after the last."""
        body, condition = (body_of(node, self.functions, part) for part in ("body", "cond"))
        if body is None or condition is None or len(body.results) != len(state) or self._depth > DEEPEST_LOOPS:
            raise _Unknown
        self._depth += 1
        count = 0
        while self._goes_on(condition, state):
            state = self._results(body, state, body.results)
            count += 1
        self._depth -= 1
        return count, state

    def _goes_on(self, condition: Function, state: Sequence[Number]) -> bool:
        (holds,) = self._results(condition, state, condition.results[:1])
        if holds is None:
            raise _Unknown
        return bool(holds)

    def _results(self, function: Function, given: Sequence[Number], wanted: Sequence[str]) -> List[Number]:
        self.spend(1 + len(given))
        if len(given) != len(function.arguments) or not wanted:
            raise _Unknown
        if function.name not in self._bodies:
            self.spend(len(function.nodes))
            self._bodies[function.name] = _Body(function)
        call = _Call(self, self._bodies[function.name], dict(zip(function.arguments, given)))
        return [call.value(reference) for reference in wanted]

    def spend(self, steps: int) -> None:
        """Take some steps; a loop for which none are left is not counted."""
        self.left -= steps
        if self.left < 0:
            raise _Unknown


class _Body:
    """The nodes of a function by name, and what references among them mean."""

    def __init__(self, function: Function) -> None:
        self.names: References = references(function.nodes, True, function.results)
        self.nodes: Dict[str, Node] = {node.name: node for node in function.nodes}


class _Call:
    """One call of a function on whole numbers."""

    def __init__(self, counter: Counter, body: _Body, known: Dict[str, Number]) -> None:
        self.counter, self.body, self.known = counter, body, known
        self.open: List[str] = []

    def value(self, reference: str) -> Number:
        flat = self.body.names.flat(reference)
        if flat not in self.known:
            self.known.update(self._made(flat.partition(":")[0]))
            self.known.setdefault(flat, None)
        return self.known[flat]

    def _made(self, name: str) -> Dict[str, Number]:
        """The numbers that a node makes."""
        self.counter.spend(1)
        node = self.body.nodes.get(name)
        if node is None or name in self.open or len(self.open) > DEEPEST:
            raise _Unknown
        if node.op == "Const":
            return {name: number_of(node.attributes.get("value"))}
        if node.op not in ARITHMETIC and node.op not in LOOPS:
            return {name: None}
        self.open.append(name)
        given = [self.value(each) for each in node.inputs if not each.startswith("^")]
        self.open.pop()
        if node.op in LOOPS:
            last = self.counter.ended(node, given)[1]
            return {f"{name}:{place}" if place else name: value for place, value in enumerate(last)}
        return {name: computed(node.op, given)}
