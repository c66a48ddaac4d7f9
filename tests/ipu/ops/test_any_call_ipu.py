"""Calls of ops that Hypothesis draws, many in one program; what fails is shrunk to one small call."""

from __future__ import annotations

from typing import Any, List

import pytest

from ipu_conformance import frameworks
from ipu_conformance.ops import TABLE, Row
from ipu_conformance.ops.row import LIBRARIES
from ipu_conformance.ops.variants import chosen_by
from ipu_conformance.oracle.sample import Chooser

from . import judge
from .bench import Bench

PROGRAMS, CALLS = 4, 24
"""Programs of a case, and calls in one of them at the most."""


def _rows(framework: str) -> List[Row]:
    return [row for row in TABLE.values() if row.missing(LIBRARIES[framework]) is None]


@pytest.mark.requires("hypothesis")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [3, 5, 7])
@pytest.mark.parametrize("framework_name", list(LIBRARIES))
def test_any_call(framework_name: str, seed: int) -> None:
    """Whatever the shapes, the attributes and the values, outputs and gradients are the oracle's."""
    import hypothesis
    from hypothesis import strategies

    rows, driver = _rows(framework_name), frameworks.load(framework_name)

    class Drawn(Chooser):
        """Choices that Hypothesis makes, and shrinks."""

        def __init__(self, data: Any) -> None:
            self._data = data

        def integer(self, low: int, high: int) -> int:
            return int(self._data.draw(strategies.integers(low, high)))

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=PROGRAMS,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
    )
    @hypothesis.given(strategies.data())
    def drawn(data: Any) -> None:
        chosen = data.draw(strategies.lists(strategies.sampled_from(rows), min_size=1, max_size=CALLS, unique=True))
        bench = Bench(framework_name, driver, "float32", ())
        calls = [(row, chosen_by(row, Drawn(data))) for row in chosen]
        for row, trial in bench.try_calls(calls):
            judge.forward(row, trial, "float32", framework_name)
            if trial.cotangents:
                judge.gradient(row, trial, "float32", framework_name)

    drawn()
