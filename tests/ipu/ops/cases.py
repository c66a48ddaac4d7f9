"""Which cases there are: every framework, op, type of number and edge that make sense together."""

from __future__ import annotations

from typing import Any, Iterator, List, NamedTuple

import pytest

from ipu_conformance.ops import TABLE, Row
from ipu_conformance.ops.expectation import has_gradient
from ipu_conformance.ops.row import LIBRARIES
from ipu_conformance.ops.variants import FORMATS, dtypes, edges


class OpCase(NamedTuple):
    """One case of an op: where it runs and what is asked."""

    framework: str
    row: Row
    dtype: str
    edge: str

    def __str__(self) -> str:
        return f"{self.framework}-{self.row.op.family}-{self.row.name}-{self.dtype}-{self.edge}"


def cases(direction: str) -> Iterator[OpCase]:
    """The cases of a direction, "forward" or "gradient", those that share programs beside each other."""
    for framework, library in LIBRARIES.items():
        for dtype in (*FORMATS, "int32", "bool"):
            for row in sorted(TABLE.values(), key=lambda row: row.op.family):
                if row.missing(library) is None and dtype in dtypes(row):
                    for edge in ("drawn", *edges(row, dtype)):
                        if direction == "forward" or has_gradient(row, framework, dtype, edge):
                            yield OpCase(framework, row, dtype, edge)


def level(case: OpCase) -> str:
    """The level of a case: special numbers in float16 are seen in float32 first."""
    if case.dtype == "float32" or (case.dtype == "float16" and case.edge in ("drawn", "long")):
        return "premerge"
    return "qualify"


def parameters(direction: str) -> List[Any]:
    """The cases of a direction as parameters (bench, row, edge)."""
    return [
        pytest.param(
            (case.framework, case.dtype), case.row, case.edge, id=str(case), marks=pytest.mark.level(level(case))
        )
        for case in cases(direction)
    ]
