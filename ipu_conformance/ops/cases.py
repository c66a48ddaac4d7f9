"""Which cases of ops there are: every framework, op, type of number, direction and edge that make sense together."""

from __future__ import annotations

import itertools
from typing import Iterable, Iterator, List, NamedTuple, Optional

from ipu_conformance.ops import TABLE
from ipu_conformance.ops.dtypes import DTYPES, FORMATS, applies
from ipu_conformance.ops.expectation import WITHOUT_GRADIENT
from ipu_conformance.ops.latitude import latitudes
from ipu_conformance.ops.open import OUTSIDE, why_open
from ipu_conformance.ops.row import LIBRARIES, Row
from ipu_conformance.ops.sampling import Call
from ipu_conformance.ops.unhandled import FRAMEWORK, UNHANDLED, why_unhandled
from ipu_conformance.ops.variants import ALL_SPECIAL, SPECIAL, calls, edges, is_floating, special

DIRECTIONS = ("forward", "gradient")
EDGES = ("drawn", "size-one", "empty", "long", "bits", *SPECIAL, ALL_SPECIAL)

WITHOUT_ELEMENTS = {
    "poptorch": "PopTorch refuses tensors without elements",
    "paddle": "neither Paddle's nor PopART's documents say what becomes of a tensor without elements",
}
"""Why tensors without elements are not asked for; XLA for the IPU replaces what has none (ZeroSizedHloElimination)."""
NO_SUCH_EDGE = "the edge does not apply to the op"


class OpCase(NamedTuple):
    """One case of an op: where it runs and what is asked."""

    framework: str
    row: Row
    dtype: str
    direction: str
    edge: str

    def __str__(self) -> str:
        return f"{self.framework}-{self.row.op.family}-{self.row.name}-{self.dtype}-{self.edge}"

    @property
    def gap(self) -> str:
        """Why there is no such case, empty if there is."""
        row = self.row
        unasked = why_unasked(self.framework, row, self.dtype)
        if unasked:
            return unasked
        if self.edge in OUTSIDE.get(row.name, ()):
            return "outside the domain"
        if self.edge not in ("drawn", *edges(row, self.dtype)):
            return NO_SUCH_EDGE
        if self.edge == "empty" and self.framework in WITHOUT_ELEMENTS:
            return WITHOUT_ELEMENTS[self.framework]
        return self._without_gradient() if self.direction == "gradient" else ""

    def _without_gradient(self) -> str:
        if self.row.op.vjp is None or self.dtype not in FORMATS:
            return "not differentiable"
        if LIBRARIES[self.framework] in self.row.without_gradient:
            return f"{self.framework} has no gradient of it"
        return "gradients there are promised by nobody" if self.edge in WITHOUT_GRADIENT else ""

    @property
    def open(self) -> str:
        """Why the result is left open, empty if it is specified."""
        return why_open(self.row.name, self.framework, self.direction, self.edge)

    @property
    def unhandled(self) -> str:
        """Why the emulator alone is asked: public sources of the framework take no call of the case; empty if one is.

        Only Paddle's handlers are public op by op.
        """
        rule = UNHANDLED.get(self.row.name)
        if rule is None or self.framework != FRAMEWORK:
            return ""
        return rule.reason if rule.whole or not any(map(self._calls_taken, self._single_edges())) else ""

    def _single_edges(self) -> Iterable[str]:
        return special(self.row) if self.edge == ALL_SPECIAL else (self.edge,)

    def _calls_taken(self, edge: str) -> List[Call]:
        def taken(call: Call) -> bool:
            return not why_unhandled(self.row.name, self.framework, call.samples)

        return [call for call in calls(self.row, edge, self.dtype, self.framework, taken) if taken(call)]

    @property
    def latitude(self) -> str:
        """Why more than one result is allowed, empty if one is."""
        known = latitudes(self.row.name, self.framework, self.direction, self.edge)
        return "" if self.open or not known else known[0].reason


def why_unasked(framework: str, row: Row, dtype: str) -> str:
    """Why there is no case of an op in a type of number, whatever the edge; empty if there are some."""
    missing = row.missing(LIBRARIES[framework])
    if missing is not None:
        return missing
    return "" if applies(dtype, row.name, is_floating(row.op)) else f"{dtype} does not apply"


def combinations(rows: Optional[Iterable[Row]] = None) -> Iterator[OpCase]:
    """Every combination for some rows or all, those that share programs beside each other."""
    ordered = _by_family(TABLE.values() if rows is None else rows)
    for framework in LIBRARIES:
        for dtype in DTYPES:
            for row in ordered:
                for direction in DIRECTIONS:
                    for edge in EDGES:
                        yield OpCase(framework, row, dtype, direction, edge)


def cases(direction: str, frameworks: Iterable[str] = tuple(LIBRARIES)) -> Iterator[OpCase]:
    """The cases of a direction, "forward" or "gradient", on some frameworks or all, in the order of combinations."""
    chosen = set(frameworks)
    ordered = _by_family(TABLE.values())
    for framework in LIBRARIES:
        for dtype, row in itertools.product(DTYPES, ordered):
            if framework in chosen and not why_unasked(framework, row, dtype):
                asked = {"drawn", *edges(row, dtype)}
                each = (OpCase(framework, row, dtype, direction, edge) for edge in EDGES if edge in asked)
                yield from (case for case in each if not case.gap)


def _by_family(rows: Iterable[Row]) -> List[Row]:
    return sorted(rows, key=lambda row: row.op.family)
