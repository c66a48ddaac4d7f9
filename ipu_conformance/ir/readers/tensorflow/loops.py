"""How often a loop of TensorFlow goes round, where that follows from whole numbers that the graph holds.

Only what the condition needs is computed, on whole numbers alone; everything else of a loop's body stays unknown.
"""

from __future__ import annotations

import operator
import struct
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ipu_conformance.ir.readers.tensorflow.messages import Function, FunctionName, Node
from ipu_conformance.ir.readers.tensorflow.references import References, references
from ipu_conformance.ir.tensor import Literal

LOOPS = ("While", "StatelessWhile")
MOST_STEPS = 20_000
"""The most nodes that are computed to count the turns of one loop."""
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


def turns(node: Node, start: Sequence[Number], functions: Mapping[str, Function]) -> Optional[int]:
    """How often a loop that begins with these values goes round; None if the graph does not say, or it is too often."""
    try:
        return len(_Counter(functions).states(node, list(start))) - 1
    except _Unknown:
        return None


class _Counter:
    """Computes the numbers of loops, and counts what that takes."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self.functions, self.left, self.depth = functions, MOST_STEPS, 0

    def states(self, node: Node, start: List[Number]) -> List[List[Number]]:
        """The values before the first turn and after each."""
        body, condition = (body_of(node, self.functions, part) for part in ("body", "cond"))
        if body is None or condition is None or len(body.results) != len(start) or self.depth > DEEPEST_LOOPS:
            raise _Unknown
        self.depth += 1
        states = [start]
        while self._goes_on(condition, states[-1]):
            states.append(self._results(body, states[-1], body.results))
        self.depth -= 1
        return states

    def _goes_on(self, condition: Function, state: Sequence[Number]) -> bool:
        (holds,) = self._results(condition, state, condition.results[:1])
        if holds is None:
            raise _Unknown
        return bool(holds)

    def _results(self, function: Function, given: Sequence[Number], wanted: Sequence[str]) -> List[Number]:
        if len(given) != len(function.arguments) or not wanted:
            raise _Unknown
        call = _Call(self, function, given)
        return [call.value(reference) for reference in wanted]


class _Call:
    """One call of a function on whole numbers."""

    def __init__(self, counter: _Counter, function: Function, given: Sequence[Number]) -> None:
        self.counter = counter
        self.names: References = references(function.nodes, True, function.results)
        self.nodes: Dict[str, Node] = {node.name: node for node in function.nodes}
        self.known: Dict[str, Number] = dict(zip(function.arguments, given))
        self.open: List[str] = []

    def value(self, reference: str) -> Number:
        flat = self.names.flat(reference)
        if flat not in self.known:
            name = flat.partition(":")[0]
            self.known.update(self._made(name))
            self.known.setdefault(flat, None)
        return self.known[flat]

    def _made(self, name: str) -> Dict[str, Number]:
        """The numbers that a node makes."""
        node = self.nodes.get(name)
        self.counter.left -= 1
        if node is None or name in self.open or self.counter.left < 0 or len(self.open) > DEEPEST:
            raise _Unknown
        if node.op == "Const":
            return {name: number_of(node.attributes.get("value"))}
        if node.op not in ARITHMETIC and node.op not in LOOPS:
            return {name: None}
        self.open.append(name)
        try:
            given = [self.value(each) for each in node.inputs if not each.startswith("^")]
        finally:
            self.open.pop()
        if node.op in LOOPS:
            last = self.counter.states(node, given)[-1]
            return {f"{name}:{place}" if place else name: value for place, value in enumerate(last)}
        return {name: computed(node.op, given)}
