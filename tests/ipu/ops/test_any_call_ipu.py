"""Calls of ops that Hypothesis draws, all of a case in one program; what fails is drawn again alone and shrunk."""

from __future__ import annotations

from typing import Any, Callable, List, Tuple

import pytest

from ipu_conformance import check, frameworks
from ipu_conformance.ops import TABLE, Row
from ipu_conformance.ops.row import LIBRARIES
from ipu_conformance.ops.sampling import Call, chosen_by
from ipu_conformance.oracle.sample import Chooser
from ipu_conformance.trials import judge
from ipu_conformance.trials.bench import Bench, Trial

from .conftest import makes_every_call

CALLS = 8
"""Calls of a case, each of another op."""
EXAMPLES = 60
"""Calls of an op that failed among which a small one that fails is looked for."""
SEEDS = [3, 5, 7]


def _rows(framework: str, seed: int) -> List[Row]:
    """The ops of a case: no two seeds have one in common."""
    rows = [row for row in TABLE.values() if row.missing(LIBRARIES[framework]) is None]
    return rows[SEEDS.index(seed) :: len(SEEDS)]


def _hypothesis(test: Callable[[Any], None], examples: int, seed: int) -> None:
    """Run a test of drawn data; a failure is shrunk."""
    import hypothesis
    from hypothesis import strategies

    settings = hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
    )
    hypothesis.seed(seed)(settings(hypothesis.given(strategies.data())(test)))()


class _Drawn(Chooser):
    """Choices that Hypothesis makes, and shrinks."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def integer(self, low: int, high: int) -> int:
        from hypothesis import strategies

        return int(self._data.draw(strategies.integers(low, high)))


def _drawn_calls(rows: List[Row], seed: int) -> List[Tuple[Row, Call]]:
    """Calls of several ops; the first example of Hypothesis is the smallest of everything, the second is not."""
    from hypothesis import strategies

    examples: List[List[Tuple[Row, Call]]] = []

    def draw(data: Any) -> None:
        listed = strategies.lists(strategies.sampled_from(rows), min_size=CALLS, max_size=CALLS, unique=True)
        examples.append([(row, chosen_by(row, _Drawn(data))) for row in data.draw(listed)])

    _hypothesis(draw, 2, seed)
    return examples[-1]


def _judge(row: Row, trial: Trial, framework: str) -> None:
    __tracebackhide__ = True
    judge.forward(row, trial, "float32", framework)
    if trial.cotangents:
        judge.gradient(row, trial, "float32", framework)


@pytest.mark.requires("hypothesis")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("framework_name", list(LIBRARIES))
def test_any_call(request: pytest.FixtureRequest, framework_name: str, seed: int) -> None:
    """Whatever the shapes, the attributes and the values, outputs and gradients are the oracle's."""
    every = makes_every_call(request, framework_name)
    bench = Bench(framework_name, frameworks.load(framework_name), "float32", (), every=every)
    for row, trial in bench.try_calls(_drawn_calls(_rows(framework_name, seed), seed)):
        try:
            _judge(row, trial, framework_name)
        except check.CheckFailure:
            _shrink(bench, row, seed)
            raise


def _shrink(bench: Bench, row: Row, seed: int) -> None:
    """Fail with a small call of an op that fails, if one is found."""

    def alone(data: Any) -> None:
        for _, trial in bench.try_calls([(row, chosen_by(row, _Drawn(data)))]):
            _judge(row, trial, bench.framework)

    _hypothesis(alone, EXAMPLES, seed)
