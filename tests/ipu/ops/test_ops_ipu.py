"""Every op of the table makes of every micro-batch what the oracle says, and so do its gradients.

The cases of an op follow from its row: drawn calls that cover its geometry, and the edges of its domain. Those of one
family share compiled programs.
"""

from __future__ import annotations

from typing import List

import pytest

from ipu_conformance import levels
from ipu_conformance.asking import SELECTION
from ipu_conformance.ops import Row
from ipu_conformance.ops.cases import OpCase, cases
from ipu_conformance.trials import judge
from ipu_conformance.trials.bench import Bench, Trial
from ipu_conformance.triangulation import POINT


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The cases of a direction, on the frameworks and the level of the run, as parameters (bench, row, edge)."""
    selection, name = metafunc.config.stash[SELECTION], metafunc.function.__name__
    asked = [
        case
        for case in cases(name[len("test_") :], selection.frameworks)
        if selection.has_level(levels.shipped().of(f"ops/test_ops_ipu.py::{name}[{case}]"))
    ]
    parameters = [
        pytest.param((case.framework, case.dtype), case.row, case.edge, id=str(case), marks=_marks(case))
        for case in asked
    ]
    metafunc.parametrize(("bench", "row", "edge"), parameters, indirect=["bench"])


def _marks(case: OpCase) -> List[pytest.MarkDecorator]:
    return [pytest.mark.emulator] if case.unhandled else []


def test_forward(request: pytest.FixtureRequest, bench: Bench, row: Row, edge: str) -> None:
    """The outputs of an op are the oracle's."""
    made = trials(bench, row, edge)
    found = judge.shared_point(row, made[0], bench.dtype, bench.framework)
    if found is not None:
        request.node.stash[POINT] = found
    for trial in made:
        judge.forward(row, trial, bench.dtype, bench.framework)


def test_gradient(bench: Bench, row: Row, edge: str) -> None:
    """The gradients of an op's inputs are the oracle's, summed over the micro-batches."""
    for trial in trials(bench, row, edge):
        judge.gradient(row, trial, bench.dtype, bench.framework)


def trials(bench: Bench, row: Row, edge: str) -> List[Trial]:
    """What came of the calls of a case, which cannot pass without one."""
    made = bench.trials(row, edge)
    if not made:
        pytest.skip(f"{bench.framework} cannot express a call of {row.name} at the edge {edge}")
    return made
