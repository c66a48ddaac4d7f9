"""Patterns: chains of ops to look for in a graph, such as ``Conv{stage=1, kernel_shape=[3 3]} -> Relu -> MaxPool``.

A step names one type, several (``MaxPool|AveragePool``) or any (``*``). In braces it may ask for ``ipu``, ``stage``,
``name`` or any attribute, with the value written as in PopART JSON. A step follows another when it reads one of its
outputs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Optional, Tuple, Union

from ipu_conformance.ir.formats.popart import attribute_value
from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.ir.tensor import Attribute, FrozenDict, IRError

MAX_MATCHES = 10_000
"""The most places that one pattern may match; a chain of wildcards has exponentially many."""

_STEP = re.compile(r"\s*(?P<types>[^\s{}]+)\s*(?:\{(?P<asked>[^{}]*)\})?\s*")


@dataclass(frozen=True)
class Step:
    """One op of a chain and its conditions; no types means any."""

    types: Tuple[str, ...] = ()
    name: Optional[str] = None
    ipu: Optional[int] = None
    stage: Optional[int] = None
    attributes: Mapping[str, Attribute] = field(default_factory=lambda: FrozenDict({}))

    def fits(self, op: Op) -> bool:
        """Whether an op is what the step asks for."""
        return (
            (not self.types or op.type in self.types)
            and self.name in (None, op.name)
            and self.ipu in (None, op.ipu)
            and self.stage in (None, op.stage)
            and all(op.attributes.get(name) == value for name, value in self.attributes.items())
        )


Pattern = Union[str, Tuple[Step, ...]]


def parse(text: str) -> Tuple[Step, ...]:
    """The chain that a pattern's text stands for."""
    steps = []
    for part in text.split("->"):
        matched = _STEP.fullmatch(part)
        if matched is None:
            raise IRError(f"the step {part.strip()!r} of the pattern {text!r} does not look like Type{{key=value, …}}")
        types = tuple(matched["types"].split("|"))
        if "" in types:
            raise IRError(f"the step {part.strip()!r} of the pattern {text!r} has an empty type; use * for any")
        steps.append(_step(() if types == ("*",) else types, matched["asked"] or "", text))
    return tuple(steps)


def match(graph: Graph, pattern: Pattern, *, limit: int = MAX_MATCHES) -> List[Tuple[Op, ...]]:
    """Every chain of ops that the pattern fits, in graph order; more than ``limit`` of them is an error."""
    steps = parse(pattern) if isinstance(pattern, str) else tuple(pattern)
    if not steps:
        raise IRError("the pattern has no steps; give at least one op type")
    following = _following(graph, steps)
    matches: List[Tuple[Op, ...]] = []
    # Only ops from which the rest of the chain can be completed are entered, so the work is bounded by the matches.
    pending: List[Tuple[int, ...]] = [(index,) for index in sorted(following[0], reverse=True)]
    while pending:
        chain = pending.pop()
        if len(chain) < len(steps):
            pending.extend((*chain, index) for index in reversed(following[len(chain) - 1][chain[-1]]))
            continue
        matches.append(tuple(graph.ops[index] for index in chain))
        if len(matches) > limit:
            raise IRError(f"the pattern fits more than {limit} places of graph {graph.name!r}; narrow its steps")
    return matches


def _following(graph: Graph, steps: Tuple[Step, ...]) -> List[Dict[int, List[int]]]:
    """For each step, the ops that can stand there, with those that can stand after them."""
    readers: Dict[str, List[int]] = {}
    for index, op in enumerate(graph.ops):
        for name in dict.fromkeys(op.inputs):
            readers.setdefault(name, []).append(index)
    tables: List[Dict[int, List[int]]] = []
    for position in reversed(range(len(steps))):
        table: Dict[int, List[int]] = {}
        for index, op in enumerate(graph.ops):
            if not steps[position].fits(op):
                continue
            if not tables:
                table[index] = []
                continue
            after = {reader for name in op.outputs if name for reader in readers.get(name, ()) if reader in tables[-1]}
            if after:
                table[index] = sorted(after)
        tables.append(table)
    return tables[::-1]


def _step(types: Tuple[str, ...], asked: str, text: str) -> Step:
    name: Optional[str] = None
    placement: Dict[str, int] = {}
    attributes: Dict[str, Attribute] = {}
    for item in filter(None, (part.strip() for part in asked.split(","))):
        key, equals, value_text = (part.strip() for part in item.partition("="))
        if not equals or not key:
            raise IRError(f"{item!r} in the pattern {text!r} does not look like key=value")
        value = attribute_value(value_text)
        if key == "name":
            name = value_text
        elif key not in ("ipu", "stage"):
            attributes[key] = value
        elif isinstance(value, int):
            placement[key] = value
        else:
            raise IRError(f"{item!r} in the pattern {text!r} does not give {key} as an integer")
    return Step(types, name, placement.get("ipu"), placement.get("stage"), FrozenDict(attributes))
